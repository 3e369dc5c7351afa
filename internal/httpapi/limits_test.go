package httpapi_test

import (
	"cmp"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/httpapi"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var got api.LimitList
	l.send("GET", "/v5/limits", "").ok(200, &got)
	if len(got.Limits) != len(httpapi.Limits())+1 {
		t.Errorf("got %d limits, want those of the API and the one of the wiring", len(got.Limits))
	}
	if !slices.IsSortedFunc(got.Limits, func(a, b api.Limit) int { return cmp.Compare(a.Name, b.Name) }) {
		t.Error("the limits are not in order")
	}
	name, seen := regexp.MustCompile(`^[a-z][a-zA-Z]*(\.[a-z][a-zA-Z]*)*$`), map[string]bool{}
	for _, limit := range got.Limits {
		if !name.MatchString(limit.Name) || seen[limit.Name] {
			t.Errorf("%q is no name, or names two limits", limit.Name)
		}
		seen[limit.Name] = true
		if limit.Value <= 0 || limit.Unit == "" || !strings.HasSuffix(limit.Description, ".") {
			t.Errorf("%+v says too little", limit)
		}
		if limit.Code != "" && httpapi.StatusOf(limit.Code) == 0 {
			t.Errorf("%s: %s has no status", limit.Name, limit.Code)
		}
	}
	l.send("GET", "/v5/limits", "", "Authorization", "").failed(401, api.CodeMissingCredentials, "")
}

// TestEveryLimitIsShown: a limit that a request can meet is a constant of the
// domain whose name begins with Max or Default, and each of them is shown.
func TestEveryLimitIsShown(t *testing.T) {
	t.Parallel()
	shown := map[string]bool{}
	parsed(t, ".", func(_ string, file *ast.File) {
		if file.Scope.Lookup("Limits") == nil {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok {
					shown[x.Name+"."+sel.Sel.Name] = true
				}
			}
			return true
		})
	})
	if len(shown) == 0 {
		t.Fatal("the list of limits was not found")
	}
	for _, dir := range domain() {
		parsed(t, module+"/internal/"+dir, func(path string, file *ast.File) {
			for name, object := range file.Scope.Objects {
				limit := strings.HasPrefix(name, "Max") || strings.HasPrefix(name, "Default")
				if object.Kind == ast.Con && limit && !shown[file.Name.Name+"."+name] {
					t.Errorf("%s: GET /v5/limits does not show %s.%s: add a line to Limits", path, file.Name.Name, name)
				}
			}
		})
	}
}

func domain() []string {
	return []string{"command", "file", "network", "operation", "vm", "snapshot", "terminal"}
}
