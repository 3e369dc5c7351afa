package cli

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

func (a *app) vmFs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fs",
		Short: "Read and change the files of a VM",
		Long: `Read and change the files of a VM, as root.

Paths are absolute. What is made belongs to the account that commands run as,
unless an owner is named. To move files in and out, see: pando vm cp`,
	}
	return group(cmd, a.fsLs(), a.fsStat(), a.fsCat(), a.fsWrite(), a.fsMkdir(), a.fsRm(), a.fsMv(), a.fsChmod(), a.fsChown(), a.fsWatch())
}

// fileCommand makes a command whose first argument is a VM; run gets the others.
func (a *app) fileCommand(use, short, long string, least, most int, run func(cmd *cobra.Command, f *pando.Files, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: wantArgs(least, most, strings.SplitN(use, " ", 2)[1]),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return run(cmd, c.VMs.Files(args[0]), args[1:])
		},
	}
}

// changed prints what a change has done, for programs only: for people it went
// well if nothing is said.
func (a *app) changed(err error, path string) error {
	if err != nil || !a.json {
		return err
	}
	return a.printJSON(map[string]string{"path": path})
}

func (a *app) fsLs() *cobra.Command {
	var recursive bool
	var depth int
	cmd := a.fileCommand("ls VM PATH", "List a folder", "List a folder, sorted by name.", 2, 2,
		func(cmd *cobra.Command, f *pando.Files, args []string) error {
			if !recursive {
				entries, err := f.ReadDir(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.printEntries(entries)
			}
			entries := []api.DirEntry{}
			for e, err := range f.Walk(cmd.Context(), args[0], depth) {
				if err != nil {
					return err
				}
				entries = append(entries, e)
			}
			return a.printEntries(entries)
		})
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "list what is below, too")
	cmd.Flags().IntVar(&depth, "depth", 0, "how many `levels` to list with -r (default: all)")
	return cmd
}

func (a *app) printEntries(entries []api.DirEntry) error {
	if a.json {
		return a.printJSON(api.DirList{Entries: entries})
	}
	t := newTable(emptyColumn, "MODE", "OWNER", "GROUP", "SIZE", "MODIFIED", "NAME")
	for _, e := range entries {
		name := e.Name
		if e.Target != "" {
			name += " -> " + e.Target
		}
		t.add(pando.FileMode(e.Kind, e.Permissions).String(), e.Owner, e.Group, strconv.FormatInt(e.Size, 10), e.Modified.Format("2006-01-02 15:04"), name)
	}
	return t.write(a.IO.Out, 0)
}

func (a *app) fsStat() *cobra.Command {
	return a.fileCommand("stat VM PATH", "Describe a file", "Describe what is at a path itself: a symbolic link is not followed.", 2, 2,
		func(cmd *cobra.Command, f *pando.Files, args []string) error {
			st, err := f.Stat(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(st)
			}
			return a.printStat(args[0], st)
		})
}

func (a *app) printStat(path string, st api.FileStat) error {
	lines := [][2]string{
		{"path", path},
		{"kind", string(st.Kind)},
		{"size", fmt.Sprintf("%d (%s)", st.Size, bytesText(st.Size))},
		{"permissions", st.Permissions},
		{"owner", fmt.Sprintf("%s (%d)", st.Owner, st.UID)},
		{"group", fmt.Sprintf("%s (%d)", st.Group, st.GID)},
		{"modified", st.Modified.Format("2006-01-02 15:04:05 MST")},
	}
	if st.Target != "" {
		lines = append(lines, [2]string{"target", st.Target})
	}
	for _, l := range lines {
		if err := a.print("%-12s %s", l[0], printable(l[1])); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) fsCat() *cobra.Command {
	return a.fileCommand("cat VM PATH", "Print a file", "Print a file as it is. With --json its content is in base64.", 2, 2,
		func(cmd *cobra.Command, f *pando.Files, args []string) error {
			if a.json {
				b, err := f.ReadFile(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.printJSON(map[string]any{"path": args[0], "size": len(b), "content": base64.StdEncoding.EncodeToString(b)})
			}
			r, err := f.Open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer func() { _ = r.Close() }() // it is read to its end, or failed
			if _, err := io.Copy(a.IO.Out, r); err != nil {
				return fmt.Errorf("print %s: %w", args[0], err)
			}
			return nil
		})
}

// ownership holds the flags that say what is made.
type ownership struct{ mode, owner, group string }

func (o *ownership) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.mode, "mode", "m", "", "permissions in `octal`, such as 0644")
	f.StringVar(&o.owner, "owner", "", "the `name` or number of its owner")
	f.StringVar(&o.group, "group", "", "the `name` or number of its group")
}

func (o *ownership) options() (pando.FileOptions, error) {
	mode, err := octal(o.mode)
	return pando.FileOptions{Mode: mode, Owner: o.owner, Group: o.group}, err
}

// octal reads permissions; nothing is 0.
func octal(s string) (fs.FileMode, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 12)
	if err != nil {
		return 0, &usageError{message: "mode " + s + ": want octal digits such as 0644"}
	}
	return pando.FileMode(api.FileKindFile, strconv.FormatUint(n, 8)), nil
}

func (a *app) fsWrite() *cobra.Command {
	var o ownership
	cmd := a.fileCommand("write VM PATH", "Write standard input to a file",
		"Replace a file by standard input, at once when it ends. Folders above it are\nmade. A file that exists keeps its owner and mode; a new one has mode 0600.", 2, 2,
		func(cmd *cobra.Command, f *pando.Files, args []string) error {
			options, err := o.options()
			if err != nil {
				return err
			}
			return a.changed(f.Write(cmd.Context(), args[0], a.IO.In, -1, options), args[0])
		})
	cmd.Example = "  echo 'hello' | pando vm fs write web /srv/greeting -m 0644"
	o.register(cmd)
	return cmd
}

func (a *app) fsMkdir() *cobra.Command {
	var mode string
	cmd := a.fileCommand("mkdir VM PATH", "Make a folder and those above it", "Make a folder and those above it. One that exists is fine.", 2, 2,
		func(cmd *cobra.Command, f *pando.Files, args []string) error {
			m, err := octal(mode)
			if err != nil {
				return err
			}
			return a.changed(f.MkdirAll(cmd.Context(), args[0], m), args[0])
		})
	cmd.Flags().StringVarP(&mode, "mode", "m", "", "permissions in `octal` (default 0755)")
	return cmd
}

func (a *app) fsRm() *cobra.Command {
	return a.fileCommand("rm VM PATH", "Remove a file, or a folder with all that is in it", "Remove a file, or a folder with all that is in it.", 2, 2,
		func(cmd *cobra.Command, f *pando.Files, args []string) error {
			return a.changed(f.RemoveAll(cmd.Context(), args[0]), args[0])
		})
}

func (a *app) fsMv() *cobra.Command {
	return a.fileCommand("mv VM FROM TO", "Rename a file or a folder within a VM",
		"Rename a file or a folder within a VM. A file at the new path is replaced, and\nfolders above it are made.", 3, 3,
		func(cmd *cobra.Command, f *pando.Files, args []string) error {
			return a.changed(f.Rename(cmd.Context(), args[0], args[1]), args[1])
		})
}

func (a *app) fsChmod() *cobra.Command {
	var recursive bool
	cmd := a.fileCommand("chmod VM MODE PATH", "Set permissions", "Set permissions, in octal digits such as 0755.", 3, 3,
		func(cmd *cobra.Command, f *pando.Files, args []string) error {
			mode, err := octal(args[0])
			if err != nil {
				return err
			}
			return a.changed(f.Chmod(cmd.Context(), args[1], mode, recursive), args[1])
		})
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "change everything below, too")
	return cmd
}

func (a *app) fsChown() *cobra.Command {
	var recursive bool
	cmd := a.fileCommand("chown VM OWNER[:GROUP] PATH", "Set owner and group", "Set owner and group, by names or numbers of the VM. \":GROUP\" sets the group alone.", 3, 3,
		func(cmd *cobra.Command, f *pando.Files, args []string) error {
			owner, group, _ := strings.Cut(args[0], ":")
			return a.changed(f.Chown(cmd.Context(), args[1], owner, group, recursive), args[1])
		})
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "change everything below, too")
	return cmd
}

func (a *app) fsWatch() *cobra.Command {
	var recursive bool
	cmd := a.fileCommand("watch VM PATH", "Print what happens to files, until interrupted",
		"Print what happens to a file or in a folder, one line per event, until\ninterrupted. After \"rescan\" events were lost. With --json each line is a document.", 2, 2,
		func(cmd *cobra.Command, f *pando.Files, args []string) error {
			for e, err := range f.Watch(cmd.Context(), args[0], recursive) {
				if err == nil {
					err = a.printEvent(e)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "watch what is below, too")
	return cmd
}

func (a *app) printEvent(e api.FileEvent) error {
	if a.json {
		b, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("write output: %w", err)
		}
		return a.print("%s", b)
	}
	if e.From != "" {
		return a.print("%-10s %s -> %s", e.Type, printable(e.From), printable(e.Path))
	}
	return a.print("%-10s %s", e.Type, printable(e.Path))
}
