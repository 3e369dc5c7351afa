package archtest_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/pandovm/pando"

// pkg is one package of the module. Its tests count for its comment only.
type pkg struct {
	// dir is relative to the module, with slashes: "internal/vm".
	dir, name string
	docs      []string
	// imports are full import paths.
	imports map[string]bool
}

// root is the module's folder.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("this test must run in its folder: %v", err)
	}
	return dir
}

// goFiles lists the module's Go files relative to root, tests included.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := fs.WalkDir(os.DirFS(root(t)), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && ignored(d.Name()):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, ".go"):
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("walk the module: %v", err)
	}
	return files
}

// ignored are the folders that the go tool passes over, and other modules.
func ignored(name string) bool {
	return name == "testdata" || name == "tools" || name == "bin" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

// packages parses the module, keyed by dir.
func packages(t *testing.T) map[string]*pkg {
	t.Helper()
	all := map[string]*pkg{}
	files := goFiles(t)
	slices.SortStableFunc(files, func(a, b string) int { return cmp.Compare(testLast(a), testLast(b)) })
	for _, name := range files {
		inTest := strings.HasSuffix(name, "_test.go")
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root(t), name), nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			t.Fatalf("parse %s: %v", name, err)
		}
		p := all[path.Dir(name)]
		switch {
		case p == nil && inTest:
			continue // nothing but tests: it is no package that anybody could import
		case p == nil:
			p = &pkg{dir: path.Dir(name), name: file.Name.Name, imports: map[string]bool{}}
			all[p.dir] = p
		}
		p.document(file)
		if !inTest {
			p.link(t, file)
		}
	}
	return all
}

func (p *pkg) document(file *ast.File) {
	if text := strings.TrimSpace(file.Doc.Text()); text != "" && file.Name.Name == p.name {
		p.docs = append(p.docs, text)
	}
}

func (p *pkg) link(t *testing.T, file *ast.File) {
	t.Helper()
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		p.imports[imported] = true
	}
}

// testLast orders a package's tests behind the files that make it one.
func testLast(name string) int {
	if strings.HasSuffix(name, "_test.go") {
		return 1
	}
	return 0
}

// own returns the packages of this module that p imports, as dirs.
func (p *pkg) own() []string {
	var dirs []string
	for _, imported := range slices.Sorted(maps.Keys(p.imports)) {
		if dir, ok := strings.CutPrefix(imported, modulePath+"/"); ok {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// foreign returns the imports of p that are neither of this module nor of the
// standard library.
func (p *pkg) foreign() []string {
	var paths []string
	for _, imported := range slices.Sorted(maps.Keys(p.imports)) {
		first, _, _ := strings.Cut(imported, "/")
		if strings.Contains(first, ".") && !strings.HasPrefix(imported, modulePath+"/") {
			paths = append(paths, imported)
		}
	}
	return paths
}

// closure returns dir and every package of this module that it links.
func closure(all map[string]*pkg, dir string) []*pkg {
	seen := map[string]bool{}
	var linked []*pkg
	var visit func(string)
	visit = func(dir string) {
		if p := all[dir]; p != nil && !seen[dir] {
			seen[dir] = true
			linked = append(linked, p)
			for _, next := range p.own() {
				visit(next)
			}
		}
	}
	visit(dir)
	return linked
}

// under reports whether dir is one of the trees or lies in one.
func under(dir string, trees []string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool { return dir == tree || strings.HasPrefix(dir, tree+"/") })
}
