package archtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pandovm/pando/internal/vm"
)

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestArchitectureNamesEveryPackage(t *testing.T) {
	t.Parallel()
	text := read(t, "docs/ARCHITECTURE.md")
	for dir := range packages(t) {
		if !under(dir, []string{"test"}) && !strings.Contains(text, "`"+dir+"`") {
			t.Errorf("docs/ARCHITECTURE.md does not say what %s owns", dir)
		}
	}
}

func TestArchitectureShowsTheStates(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| From | May become |\n|---|---|\n")
	for _, from := range vm.States() {
		var to []string
		for _, s := range vm.States() {
			if vm.CanEnter(from, s) {
				to = append(to, "`"+string(s)+"`")
			}
		}
		fmt.Fprintf(&table, "| `%s` | %s |\n", from, strings.Join(to, ", "))
	}
	if !strings.Contains(read(t, "docs/ARCHITECTURE.md"), table.String()) {
		t.Errorf("docs/ARCHITECTURE.md lacks this table:\n%s", table.String())
	}
}

func TestEveryDependencyIsExplained(t *testing.T) {
	t.Parallel()
	text := read(t, "docs/dependencies.md")
	modules := requirements(t)
	for dir, p := range packages(t) {
		for _, imported := range p.foreign() {
			i := slices.IndexFunc(modules, func(m string) bool { return under(imported, []string{m}) })
			if i < 0 {
				t.Errorf("%s imports %s, which no module in go.mod provides", dir, imported)
				continue
			}
			if !strings.Contains(text, "| `"+modules[i]+"` |") {
				t.Errorf("%s imports %s: docs/dependencies.md has no row for it", dir, modules[i])
			}
		}
	}
}

// requirements lists the modules in go.mod.
func requirements(t *testing.T) []string {
	t.Helper()
	var modules []string
	for line := range strings.Lines(read(t, "go.mod")) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) >= 2 && strings.HasPrefix(fields[1], "v") {
			modules = append(modules, fields[0])
		}
	}
	return modules
}
