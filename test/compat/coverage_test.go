package compat

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// groups are the commands that have commands of their own.
//
//nolint:gochecknoglobals // constant
var groups = []string{"vm", "vm fs", "vm snapshot", "snapshot"}

// beyond are options that have no place here, with the reason.
//
//nolint:gochecknoglobals // constant
var beyond = map[string]string{
	"--api-key": "the environment says it", "--proxy": "the environment says it", "--team": "teams belong to logins",
	"--help": "used to find the rest", "--version": "no call",
	"--vpc": "private networks are not there yet", "--ipv4": "private networks are not there yet",
}

// usage is which commands and which options of them have run.
type usage struct {
	mu      sync.Mutex
	options map[string]map[string]bool
}

func newUsage() *usage { return &usage{options: map[string]map[string]bool{}} }

// add notes a run.
func (u *usage) add(args []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	path, options := parse(args)
	if u.options[path] == nil {
		u.options[path] = map[string]bool{}
	}
	for _, o := range options {
		u.options[path][o] = true
	}
}

// of returns the options that ran with a command, nil if it did not run. The
// commands of "vm snapshot" are those of "snapshot" under a second name, and
// every command takes --output, which one piece of code obeys.
func (u *usage) of(command string) map[string]bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	own, ran := u.options[command]
	if !ran {
		return nil
	}
	all := map[string]bool{"--output": true}
	maps.Copy(all, own)
	if first, twice := strings.CutPrefix(command, "vm snapshot "); twice {
		maps.Copy(all, u.options["snapshot "+first])
	}
	return all
}

// parse splits a command line into the command and its options. What follows an
// option may be its value, so only --output may come before the command's name.
func parse(args []string) (path string, options []string) {
	var words []string
	named := false
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		name, _, _ := strings.Cut(args[i], "=")
		switch {
		case name == "--output":
			options = append(options, name)
			i++
		case strings.HasPrefix(name, "-"):
			options = append(options, spread(name)...)
			named = true
		case !named:
			words = append(words, name)
			named = !slices.Contains(groups, strings.Join(words, " "))
		}
	}
	path = strings.Join(words, " ")
	if slices.Contains(groups, path) {
		path += " create" // what a bare group does
	}
	return path, options
}

// spread turns -it into -i and -t.
func spread(name string) []string {
	if strings.HasPrefix(name, "--") {
		return []string{name}
	}
	var letters []string
	for _, letter := range name[1:] {
		letters = append(letters, "-"+string(letter))
	}
	return letters
}

func TestParse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"vm": "vm create", "vm --slug x": "vm create", "vm fs read box /x --out y": "vm fs read",
		"--output json vm snapshot list --limit 3": "vm snapshot list", "snapshot -- true": "snapshot create",
		"snapshot create box": "snapshot create",
	} {
		if got, _ := parse(strings.Fields(line)); got != want {
			t.Errorf("%s is %q, want %q", line, got, want)
		}
	}
}

// known asks the client for all its commands and their options.
func (f *freestyle) known(t *testing.T) map[string][]string {
	t.Helper()
	option := regexp.MustCompile(`(?m)^ {2,6}((?:-{1,2}[\w-]+(?:, )?)+)`)
	found := map[string][]string{}
	for _, group := range groups {
		name := regexp.MustCompile(`(?m)^  freestyle ` + group + ` (\w+)`)
		for _, m := range name.FindAllStringSubmatch(f.run(t, "", append(strings.Fields(group), "--help")...).stdout, -1) {
			command := group + " " + m[1]
			if slices.Contains(groups, command) {
				continue
			}
			help := f.run(t, "", append(strings.Fields(command), "--help")...).stdout
			for _, o := range option.FindAllStringSubmatch(help, -1) {
				found[command] = append(found[command], o[1])
			}
		}
	}
	return found
}

// wantEverything fails for each command and each option that no test has run.
func (f *freestyle) wantEverything(t *testing.T) {
	t.Helper()
	known := f.known(t)
	if len(known) < 25 {
		t.Errorf("the client has only %d commands: %v", len(known), slices.Sorted(maps.Keys(known)))
	}
	for command, options := range known {
		used := f.used.of(command)
		if used == nil {
			t.Errorf("no test runs freestyle %s", command)
			continue
		}
		for _, o := range options {
			names := strings.Split(o, ", ")
			if !slices.ContainsFunc(names, func(n string) bool { return used[n] || used[negated(n)] || beyond[n] != "" }) {
				t.Errorf("no test runs freestyle %s %s", command, o)
			}
		}
	}
}

// negated is how a switch that is on is turned off.
func negated(option string) string { return "--no-" + strings.TrimPrefix(option, "--") }
