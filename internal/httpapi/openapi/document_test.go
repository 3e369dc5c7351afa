package openapi_test

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/httpapi"
	"github.com/pandovm/pando/internal/httpapi/openapi"
)

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write api/openapi.json anew")
	flag.Bool("baseline", false, "promise clients the API as it is: write api/openapi.baseline.json anew")
	os.Exit(m.Run())
}

const (
	apiDir = "../../../api"
	golden = apiDir + "/openapi.json"
)

func document(t *testing.T) []byte {
	t.Helper()
	comments, err := openapi.ReadComments(apiDir)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi.Document(httpapi.Operations(), comments)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestGolden(t *testing.T) {
	t.Parallel()
	doc := document(t)
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(golden, doc, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(api.OpenAPI(), string(doc)); diff != "" {
		t.Errorf("api/openapi.json is out of date: run this test with -update\n%s", diff)
	}
}

// TestReferences follows every reference and reads every description.
func TestReferences(t *testing.T) {
	t.Parallel()
	var doc struct {
		Components map[string]map[string]any
	}
	raw := document(t)
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	var whole any
	if err := json.Unmarshal(raw, &whole); err != nil {
		t.Fatal(err)
	}
	refs := 0
	walk(whole, func(key string, value any) {
		text, ok := value.(string)
		if !ok {
			return // A property may have that name.
		}
		switch key {
		case "$ref":
			refs++
			kind, name, _ := strings.Cut(strings.TrimPrefix(text, "#/components/"), "/")
			if _, ok := doc.Components[kind][name]; !ok {
				t.Errorf("%s leads nowhere", text)
			}
		case "description":
			if text == "" {
				t.Error("a description is empty")
			}
		}
	})
	if refs == 0 {
		t.Error("the document has no references")
	}
}

func walk(v any, visit func(key string, value any)) {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			visit(key, member)
			walk(member, visit)
		}
	case []any:
		for _, member := range v {
			walk(member, visit)
		}
	}
}

// TestOperationsAreComplete: every route is in the document with its errors.
func TestOperationsAreComplete(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]any
			Security  *[]any
		}
	}
	if err := json.Unmarshal(document(t), &doc); err != nil {
		t.Fatal(err)
	}
	for _, op := range httpapi.Operations() {
		got, ok := doc.Paths[op.Path][strings.ToLower(op.Method)]
		if !ok {
			t.Errorf("%s %s is missing", op.Method, op.Path)
			continue
		}
		if _, ok := got.Responses["401"]; ok == op.Keyless {
			t.Errorf("%s %s: keyless is %v and a 401 documented is %v", op.Method, op.Path, op.Keyless, ok)
		}
		if op.Keyless != (got.Security != nil) {
			t.Errorf("%s %s: its own security is set: %v", op.Method, op.Path, got.Security != nil)
		}
	}
}
