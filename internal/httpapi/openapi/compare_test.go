package openapi_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/pandovm/pando/internal/httpapi/openapi"
)

// baseline is the document that clients were promised.
const baseline = apiDir + "/openapi.baseline.json"

// TestNothingBreaks compares the API with the baseline. Whoever breaks clients
// on purpose, or wants to promise what was added, runs it with -baseline.
func TestNothingBreaks(t *testing.T) {
	t.Parallel()
	doc := document(t)
	if flag.Lookup("baseline").Value.String() == "true" {
		if err := os.WriteFile(baseline, doc, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	before, err := os.ReadFile(baseline)
	if err != nil {
		t.Fatal(err)
	}
	breaks, err := openapi.Breaks(before, doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range breaks {
		t.Errorf("this breaks clients: %s (if it is meant: run this test with -baseline)", b)
	}
}

const small = `{
	"paths": {"/a": {"post": {
		"parameters": [{"name": "q", "in": "query", "schema": {"type": "string", "enum": ["x", "y"]}}],
		"requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Req"}}}},
		"responses": {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Resp"}}}}, "404": {}}
	}, "get": {"responses": {"204": {}}}}, "/b": {"get": {"responses": {}}}},
	"components": {"schemas": {
		"Req": {"type": "object", "properties": {"name": {"type": ["string", "null"]}, "count": {"type": "integer"}}, "required": ["count"]},
		"Resp": {"type": "object", "properties": {"id": {"type": "string"}, "state": {"type": "string", "enum": ["on", "off"]},
			"inner": {"type": "array", "items": {"$ref": "#/components/schemas/Inner"}}}, "required": ["id"]},
		"Inner": {"type": "object", "properties": {"n": {"type": "integer"}, "again": {"$ref": "#/components/schemas/Inner"}}, "required": ["n"]}
	}}
}`

func TestBreaks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, replacement, want string }{
		"nothing":                 {``, ``, ``},
		"an added path":           {`"paths": {`, `"paths": {"/c": {}, `, ``},
		"an added optional":       {`"count": {"type": "integer"}`, `"count": {"type": "integer"}, "more": {"type": "string"}`, ``},
		"an added answer field":   {`"id": {"type": "string"}`, `"id": {"type": "string"}, "more": {"type": "string"}`, ``},
		"an added answer value":   {`["on", "off"]`, `["on", "off", "broken"]`, ``},
		"a wider request":         {`"required": ["count"]`, `"required": []`, ``},
		"an error less":           {`, "404": {}`, ``, ``},
		"a removed path":          {`, "/b": {"get": {"responses": {}}}`, ``, "/b is gone"},
		"a removed operation":     {`, "get": {"responses": {"204": {}}}`, ``, "get /a is gone"},
		"another status":          {`"204"`, `"205"`, "answer 204 is gone"},
		"a removed parameter":     {`"name": "q"`, `"name": "r"`, "parameter query q is gone"},
		"a required parameter":    {`"in": "query", "schema"`, `"in": "query", "required": true, "schema"`, "q became required"},
		"a removed choice":        {`["x", "y"]`, `["x"]`, `the value "y" is gone`},
		"a removed request field": {`"name": {"type": ["string", "null"]}, `, ``, "field name is gone"},
		"a required field":        {`"required": ["count"]`, `"required": ["count", "name"]`, "field name became required"},
		"a narrowed request":      {`["string", "null"]`, `"string"`, "the type changed"},
		"a removed answer field":  {`"id": {"type": "string"}, `, ``, "field id is gone"},
		"an answer may lack":      {`"required": ["id"]`, `"required": []`, "id may be absent"},
		"a changed answer":        {`"id": {"type": "string"}`, `"id": {"type": "integer"}`, "the type changed"},
		"a nullable answer":       {`"id": {"type": "string"}`, `"id": {"type": ["string", "null"]}`, "the type changed"},
		"deep inside":             {`"n": {"type": "integer"}`, `"n": {"type": "string"}`, "the type changed"},
		"a narrowed enum":         {`["on", "off"]`, `["on"]`, `the value "off" is gone`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(small, c.old) {
				t.Fatal("the change changes nothing")
			}
			got, err := openapi.Breaks([]byte(small), []byte(strings.Replace(small, c.old, c.replacement, 1)))
			if err != nil {
				t.Fatal(err)
			}
			switch text := strings.Join(got, "\n"); {
			case c.want == "" && text != "":
				t.Errorf("got %s, want nothing", text)
			case !strings.Contains(text, c.want):
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
	if _, err := openapi.Breaks([]byte("{"), []byte("{}")); err == nil {
		t.Error("a broken document was read")
	}
}
