package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) man() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages into a folder",
		Hidden: true,
		Long: `Write the manual pages into a folder, one for each command.

  pando man /usr/local/share/man/man1`,
		Args: wantArgs(1, 1, "DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			pages := a.manPages(cmd.Root())
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write manual: %w", err)
			}
			for name, page := range pages {
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(page), 0o644); err != nil {
					return fmt.Errorf("write manual: %w", err)
				}
			}
			return a.print("%s in %s", count(len(pages), "page"), args[0])
		},
	}
}

// manPages makes the page of each command that people see, by file name.
func (a *app) manPages(root *cobra.Command) map[string]string {
	root.InitDefaultCompletionCmd()
	pages := map[string]string{}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		pages[manName(cmd)+".1"] = a.manPage(cmd)
		for _, sub := range shown(cmd) {
			visit(sub)
		}
	}
	visit(root)
	return pages
}

// shown are the subcommands that people see.
func shown(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
}

// manName is the name of a command's page: pando-vm-create.
func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// roff builds a page out of lines. Requests begin with a dot; text is escaped.
type roff struct{ strings.Builder }

func (r *roff) request(format string, args ...any) { _, _ = fmt.Fprintf(r, format+"\n", args...) }

// text writes lines of text; lines that begin with spaces stand as they are.
func (r *roff) text(s string) {
	begun, gap, literal := false, false, false
	for line := range strings.SplitSeq(strings.ReplaceAll(s, "\t", "    "), "\n") {
		if strings.TrimSpace(line) == "" {
			gap = begun
			continue
		}
		indented := strings.HasPrefix(line, " ")
		if literal && !indented {
			r.request(".fi")
		}
		switch {
		case gap && literal && indented:
			r.request(".sp")
		case gap || begun && indented != literal:
			r.request(".PP")
		}
		if indented && !literal {
			r.request(".nf")
		}
		r.request("%s", escape(line))
		begun, gap, literal = true, false, indented
	}
	if literal {
		r.request(".fi")
	}
}

// escape keeps text from being read as a request or an escape.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

func (a *app) manPage(cmd *cobra.Command) string {
	r := &roff{}
	r.request(`.TH %s 1 %s "Pando %s" "Pando Manual"`, strings.ToUpper(escape(manName(cmd))), a.Now().UTC().Format("2006-01-02"), escape(a.Version))
	r.request(".SH NAME\n%s \\- %s", escape(manName(cmd)), escape(lowerFirst(cmd.Short)))
	r.request(".SH SYNOPSIS\n.B %s\n%s", escape(cmd.CommandPath()), escape(synopsis(cmd)))
	r.request(".SH DESCRIPTION")
	r.text(firstOf(cmd.Long, cmd.Short+"."))
	if len(cmd.Aliases) > 0 {
		r.request(".PP\nAlso called: %s", escape(strings.Join(cmd.Aliases, ", ")))
	}
	r.commands(cmd)
	r.options("OPTIONS", cmd.NonInheritedFlags())
	r.options("GLOBAL OPTIONS", cmd.InheritedFlags())
	if cmd.Example != "" {
		r.request(".SH EXAMPLES")
		r.text(cmd.Example)
	}
	r.seeAlso(cmd)
	return r.String()
}

func lowerFirst(s string) string {
	if len(s) > 1 && s[1] >= 'a' && s[1] <= 'z' || len(s) == 1 {
		return strings.ToLower(s[:1]) + s[1:]
	}
	return s
}

func firstOf(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}

// synopsis is what follows the command's name.
func synopsis(cmd *cobra.Command) string {
	if cmd.HasSubCommands() {
		return "COMMAND"
	}
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	return strings.TrimSpace("[OPTION...] " + arguments)
}

func (r *roff) commands(cmd *cobra.Command) {
	subs := shown(cmd)
	if len(subs) == 0 {
		return
	}
	r.request(".SH COMMANDS")
	for _, sub := range subs {
		r.request(".TP\n.BR %s (1)\n%s", escape(manName(sub)), escape(sub.Short))
	}
}

func (r *roff) options(title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	r.request(".SH %s", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		r.request(".TP\n%s", optionHead(f, value))
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" && f.DefValue != "0s" {
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		r.request("%s", escape(usage))
	})
}

// optionHead is "-n, --count int" with the names in bold.
func optionHead(f *pflag.Flag, value string) string {
	head := `\fB` + escape("--"+f.Name) + `\fR`
	if f.Shorthand != "" {
		head = `\fB` + escape("-"+f.Shorthand) + `\fR, ` + head
	}
	if value != "" {
		head += ` \fI` + escape(value) + `\fR`
	}
	return head
}

func (r *roff) seeAlso(cmd *cobra.Command) {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, escape(manName(cmd.Parent())))
		for _, sibling := range shown(cmd.Parent()) {
			if sibling != cmd {
				pages = append(pages, escape(manName(sibling)))
			}
		}
	}
	if len(pages) == 0 {
		return
	}
	r.request(".SH SEE ALSO")
	for i, p := range pages {
		comma := ","
		if i == len(pages)-1 {
			comma = ""
		}
		r.request(".BR %s (1)%s", p, comma)
	}
}
