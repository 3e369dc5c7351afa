package archtest_test

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// drivers each own one outside thing; transports translate for one kind of
// caller; the wiring knows everything.
func drivers() []string {
	return []string{
		"internal/agent", "internal/disk", "internal/guest", "internal/jail", "internal/layer", "internal/link", "internal/memory",
		"internal/node", "internal/qemu", "internal/rootfs", "internal/store",
	}
}

func transports() []string { return []string{"internal/cli", "internal/httpapi"} }

func wiring() []string { return []string{"internal/daemon", "cmd"} }

func forTests() []string { return []string{"internal/testlab", "test"} }

func TestImports(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// of are the packages that the rule binds. Exactly one of only and never
		// says what they may import of this module.
		of, only, never []string
		because         string
	}{
		"api": {
			of: []string{"api"}, only: []string{},
			because: "clients depend on it alone",
		},
		"sdk": {
			of: []string{"sdk"}, only: []string{"api"},
			because: "it is compiled into other people's programs",
		},
		"fault": {
			of: []string{"internal/fault"}, only: []string{"api"},
			because: "every layer returns it",
		},
		"field": {
			of: []string{"internal/field"}, only: []string{"api", "internal/fault"},
			because: "every object of the domain has such fields",
		},
		"snapshot": {
			of: []string{"internal/snapshot"}, only: []string{"api", "internal/fault", "internal/field"},
			because: "the domain knows no driver and no transport",
		},
		"vm": {
			// Package command is for vmtest alone: it imports vm, so vm cannot import it.
			of: []string{"internal/vm"}, only: []string{"api", "internal/fault", "internal/field", "internal/snapshot", "internal/vm", "internal/command"},
			because: "the domain knows no driver and no transport",
		},
		"what runs in a vm": {
			of:      []string{"internal/command", "internal/file", "internal/terminal"},
			only:    []string{"api", "internal/fault", "internal/vm", "internal/snapshot"},
			because: "the domain knows no driver and no transport",
		},
		"network and operation": {
			of: []string{"internal/network", "internal/operation"}, only: []string{"api", "internal/fault"},
			because: "the domain knows no driver and no transport",
		},
		"image": {
			of: []string{"internal/image"}, never: slices.Concat(drivers(), transports(), wiring()),
			because: "the domain knows no driver and no transport",
		},
		"drivers": {
			of: drivers(), never: slices.Concat(transports(), wiring()),
			because: "who answers requests must be able to change without them",
		},
		"transports": {
			of: transports(), never: slices.Concat(drivers(), wiring()),
			because: "they translate and call use cases; hosts and stores are behind those",
		},
		"link": {
			of: []string{"internal/link"}, only: []string{},
			because: "host and guest share it, and the guest must stay small",
		},
		"agent": {
			of: []string{"internal/agent", "cmd/pando-agent"}, only: []string{"internal/agent", "internal/link"},
			because: "the guest must stay small and know nothing of the host",
		},
		"layers of files": {
			of: []string{"internal/layer", "internal/memory", "internal/disk"}, only: []string{"api", "internal/fault", "internal/layer"},
			because: "a saved machine must be readable without a running one",
		},
		"entry points": {
			of: []string{"api", "sdk", "internal"}, never: []string{"cmd"},
			because: "cmd only starts things",
		},
		"test tools": {
			of: []string{"api", "sdk", "internal/vm", "internal/node", "internal/httpapi", "internal/daemon", "cmd"}, never: forTests(),
			because: "what only tests need is not part of the product",
		},
	}
	all := packages(t)
	for name, rule := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for dir, p := range all {
				if !under(dir, rule.of) {
					continue
				}
				for _, imported := range p.own() {
					if (rule.only != nil && !under(imported, rule.only)) || under(imported, rule.never) {
						t.Errorf("%s imports %s: %s", dir, imported, rule.because)
					}
				}
			}
		})
	}
}

func TestStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	all := packages(t)
	for _, dir := range []string{"api", "sdk", "internal/fault", "internal/link"} {
		if all[dir] == nil {
			t.Errorf("there is no package %s", dir)
			continue
		}
		if foreign := all[dir].foreign(); len(foreign) > 0 {
			t.Errorf("%s imports %v: it may use the standard library only", dir, foreign)
		}
	}
}

// The agent runs in every VM: what it links costs memory in each of them and
// time in the first call after each fork.
func TestTheAgentStaysSmall(t *testing.T) {
	t.Parallel()
	allowed := []string{"golang.org/x/sys/unix", "golang.org/x/net/http2/hpack"}
	linked := closure(packages(t), "cmd/pando-agent")
	if len(linked) == 0 {
		t.Fatal("there is no package cmd/pando-agent")
	}
	for _, p := range linked {
		for _, imported := range p.foreign() {
			if !slices.Contains(allowed, imported) {
				t.Errorf("cmd/pando-agent links %s through %s; it may link %v only", imported, p.dir, allowed)
			}
		}
		for _, heavy := range []string{"net/http", "database/sql", "text/template", "html/template"} {
			if p.imports[heavy] {
				t.Errorf("cmd/pando-agent links %s through %s", heavy, p.dir)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	t.Parallel()
	for dir, p := range packages(t) {
		if len(p.docs) != 1 {
			t.Errorf("%s has %d package comments, want one", dir, len(p.docs))
			continue
		}
		start := "Package " + p.name + " "
		if p.name == "main" {
			start = "Command " + filepath.Base(dir) + " "
		}
		if !strings.HasPrefix(p.docs[0], start) {
			t.Errorf("%s: the package comment begins with %.40q, want %q", dir, p.docs[0], start)
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	t.Parallel()
	const most = 600
	for _, name := range goFiles(t) {
		content, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(content, []byte("\n")); lines >= most && !generated(content) {
			t.Errorf("%s has %d lines, want less than %d", name, lines, most)
		}
	}
}

func generated(content []byte) bool {
	first, _ := bufio.NewReader(bytes.NewReader(content)).ReadString('\n')
	return strings.HasPrefix(first, "// Code generated ")
}
