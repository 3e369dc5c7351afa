package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pandovm/pando/internal/cli"
)

// manual writes the pages and returns them by name.
func manual(t *testing.T) map[string]string {
	t.Helper()
	l := newLab(t, nil)
	dir := filepath.Join(t.TempDir(), "man1")
	if code := l.run(t.Context(), "man", dir); code != 0 {
		t.Fatalf("code %d: %s", code, l.err.String())
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		pages[f.Name()] = string(data)
	}
	return pages
}

func TestManualIsComplete(t *testing.T) {
	t.Parallel()
	pages := manual(t)
	root := cli.New(newLab(t, nil).Deps)
	root.InitDefaultCompletionCmd()
	commands := 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.HasParent() && !cmd.IsAvailableCommand() {
			return
		}
		commands++
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		page, ok := pages[name]
		if !ok {
			t.Errorf("no page %s", name)
		}
		wantFlags(t, name, page, cmd)
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
	if commands != len(pages) || commands < 25 {
		t.Errorf("%d pages of %d commands", len(pages), commands)
	}
}

func wantFlags(t *testing.T, name, page string, cmd *cobra.Command) {
	t.Helper()
	text := strings.ReplaceAll(page, `\-`, "-")
	wanted := []string{cmd.Short}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			wanted = append(wanted, ".BR "+strings.ReplaceAll(sub.CommandPath(), " ", "-")+" (1)", sub.Short)
		}
	}
	for _, set := range []*pflag.FlagSet{cmd.NonInheritedFlags(), cmd.InheritedFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			_, usage := pflag.UnquoteUsage(f)
			if !f.Hidden {
				wanted = append(wanted, `\fB--`+f.Name+`\fR`, usage)
			}
		})
	}
	for _, w := range wanted {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(w)) {
			t.Errorf("%s lacks %q", name, w)
		}
	}
}

func TestManualEscapes(t *testing.T) {
	t.Parallel()
	for name, page := range manual(t) {
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !strings.ContainsAny(line[1:2], "TSPBnfs") {
				t.Errorf("%s: %q is no request", name, line)
			}
			if strings.Contains(line, "\t") {
				t.Errorf("%s: %q has a tab", name, line)
			}
		}
	}
}
