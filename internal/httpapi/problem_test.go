package httpapi_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/httpapi"
	"github.com/pandovm/pando/internal/vm"
)

const module = "../.."

// parsed parses every file of Go code below dir, tests left out.
func parsed(t *testing.T, dir string, visit func(path string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "testdata" {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			return err
		}
		visit(path, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// codeConstants are the constants of type Code in package api by name.
func codeConstants(t *testing.T) map[string]api.Code {
	t.Helper()
	codes := map[string]api.Code{}
	parsed(t, module+"/api", func(path string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Code" {
				return true
			}
			for i, v := range spec.Values {
				lit, ok := v.(*ast.BasicLit)
				if !ok {
					t.Fatalf("%s: the code %s is not spelt out", path, spec.Names[i].Name)
				}
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				codes[spec.Names[i].Name] = api.Code(text)
			}
			return true
		})
	})
	if len(codes) < 15 {
		t.Fatalf("only %d codes were found", len(codes))
	}
	return codes
}

// TestEveryCodeHasAStatus reads the codes from the source, so that a new one
// cannot be forgotten.
func TestEveryCodeHasAStatus(t *testing.T) {
	t.Parallel()
	seen := map[api.Code]string{}
	for name, code := range codeConstants(t) {
		if status := httpapi.StatusOf(code); status < 400 || status > 599 {
			t.Errorf("%s has status %d", code, status)
		}
		if other := seen[code]; other != "" {
			t.Errorf("%s and %s are both %s", name, other, code)
		}
		seen[code] = name
	}
	if got := httpapi.StatusOf("NEW_CODE"); got != 0 {
		t.Errorf("an unknown code has status %d", got)
	}
}

// TestFaultsUseTheCodes: what the daemon's side makes has a code of package
// api, which the test above finds in the table.
func TestFaultsUseTheCodes(t *testing.T) {
	t.Parallel()
	codes, found := codeConstants(t), 0
	parsed(t, module+"/internal", func(path string, file *ast.File) {
		if strings.HasPrefix(path, filepath.Join(module, "internal", "cli")) {
			return // Its own codes are for what no daemon answers.
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if v, ok := codeOf(n); ok {
					found++
					if sel, ok := v.(*ast.SelectorExpr); !ok || !mapped(codes, sel) {
						t.Errorf("%s: a fault has a code that is no constant of package api", path)
					}
				}
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && isAPI(sel) && sel.Sel.Name == "Code" && isText(n.Args) {
					t.Errorf("%s: a code is made from text", path)
				}
			}
			return true
		})
	})
	if found < 10 {
		t.Errorf("only %d faults were found", found)
	}
}

// codeOf is the code in a literal of fault.Error, or of Error in package fault.
func codeOf(lit *ast.CompositeLit) (ast.Expr, bool) {
	switch typ := lit.Type.(type) {
	case *ast.SelectorExpr:
		if x, ok := typ.X.(*ast.Ident); !ok || x.Name != "fault" || typ.Sel.Name != "Error" {
			return nil, false
		}
	case *ast.Ident:
		if typ.Name != "Error" {
			return nil, false
		}
	default:
		return nil, false
	}
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Code" {
				return kv.Value, true
			}
		}
	}
	return nil, false
}

func isAPI(sel *ast.SelectorExpr) bool {
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == "api"
}

func isText(args []ast.Expr) bool {
	if len(args) != 1 {
		return false
	}
	_, ok := args[0].(*ast.BasicLit)
	return ok
}

// mapped reports whether sel is a code of package api that has a status.
func mapped(codes map[string]api.Code, sel *ast.SelectorExpr) bool {
	return isAPI(sel) && httpapi.StatusOf(codes[sel.Sel.Name]) != 0
}

// TestStatuses is the table of the API that the codes come from.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for code, want := range map[api.Code]int{
		"BAD_REQUEST": 400, "AGENT_UNSUPPORTED": 400, "MISSING_CREDENTIALS": 401, "INVALID_API_KEY": 401,
		"FORBIDDEN": 403, "NOT_FOUND": 404, "ROUTE_NOT_FOUND": 404, "METHOD_NOT_ALLOWED": 405, "CONFLICT": 409,
		"VM_NON_RESPONSIVE": 409, "PAYLOAD_TOO_LARGE": 413, "RANGE_NOT_SATISFIABLE": 416, "LIMIT_EXCEEDED": 429,
		"RATE_LIMITED": 429, "INTERNAL_ERROR": 500, "UNAVAILABLE": 503, "BACKGROUND_RESULT_UNSTORABLE": 507,
	} {
		if got := httpapi.StatusOf(code); got != want {
			t.Errorf("%s: got status %d, want %d", code, got, want)
		}
	}
}

// TestRetryable: a client may repeat by the flag alone, so nothing that may
// have had an effect has it.
func TestRetryable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code   api.Code
		reason api.Reason
		want   bool
	}{
		{api.CodeUnavailable, "", true},
		{api.CodeUnavailable, api.ReasonDiskFull, true},
		{api.CodeUnavailable, api.ReasonHostUnsupported, false},
		{api.CodeUnavailable, api.ReasonSealingMissing, false},
		{api.CodeUnavailable, api.ReasonInterrupted, false},
		{api.CodeRateLimited, "", true},
		{api.CodeConflict, api.ReasonRequestUnderWay, true},
		{api.CodeConflict, api.ReasonIdempotencyKeyReused, false},
		{api.CodeConflict, api.ReasonWrongState, false},
		{api.CodeLimitExceeded, "", false},
		{api.CodeVMNonResponsive, "", false},
		{api.CodeBadRequest, "", false},
		{api.CodeInternal, "", false},
	} {
		t.Run(string(c.code)+" "+string(c.reason), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.vms.get = func(context.Context, string) (vm.VM, error) {
				return vm.VM{}, &fault.Error{Code: c.code, Reason: c.reason, Message: "what", Remedy: "do"}
			}
			got := l.send("GET", "/v5/vms/a", "").failed(httpapi.StatusOf(c.code), c.code, "")
			if got.Retryable != c.want {
				t.Errorf("retryable is %v, want %v", got.Retryable, c.want)
			}
		})
	}
}
