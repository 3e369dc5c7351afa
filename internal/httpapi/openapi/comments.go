package openapi

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// Comments are the comments of a package of wire types.
type Comments struct {
	// types is by type name, fields by "Type.Field".
	types, fields map[string]string
	// values lists the constants of each named string type in order.
	values map[string][]Value
}

// Value is one constant of a named string type.
type Value struct{ Value, Comment string }

// Values returns the constants of the type of that name.
func (c *Comments) Values(typeName string) []Value { return c.values[typeName] }

// ReadComments reads the comments of the package in dir.
func ReadComments(dir string) (*Comments, error) {
	c := &Comments{types: map[string]string{}, fields: map[string]string{}, values: map[string][]Value{}}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("list sources: %w", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read source: %w", err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("parse source: %w", err)
		}
		c.file(file)
	}
	return c, nil
}

func (c *Comments) file(file *ast.File) {
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				c.typeSpec(spec, gen.Doc)
			case *ast.ValueSpec:
				c.valueSpec(spec)
			}
		}
	}
}

func (c *Comments) typeSpec(spec *ast.TypeSpec, doc *ast.CommentGroup) {
	name := spec.Name.Name
	st, ok := spec.Type.(*ast.StructType)
	if !ok {
		c.types[name] = sentence(doc, name, nil)
		return
	}
	json := jsonNames(st)
	c.types[name] = sentence(doc, name, json)
	var last string
	for _, field := range st.Fields.List {
		for _, ident := range field.Names {
			text := sentence(field.Doc, "", json)
			// A comment that names several fields stands above the first.
			if text == "" && mentions(last, json[ident.Name]) {
				text = last
			}
			c.fields[name+"."+ident.Name] = text
			last = text
		}
	}
}

func (c *Comments) valueSpec(spec *ast.ValueSpec) {
	ident, ok := spec.Type.(*ast.Ident)
	if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
		return
	}
	lit, ok := spec.Values[0].(*ast.BasicLit)
	if !ok {
		return
	}
	value, err := strconv.Unquote(lit.Value)
	if err != nil {
		return
	}
	text := strings.TrimLeft(sentence(spec.Doc, spec.Names[0].Name, nil), ": ")
	c.values[ident.Name] = append(c.values[ident.Name], Value{value, text})
}

// sentence is a comment as one line, in which Go names of fields are replaced
// by their JSON names and the name of the thing itself is left out.
func sentence(doc *ast.CommentGroup, self string, json map[string]string) string {
	text := strings.Join(strings.Fields(doc.Text()), " ")
	text = regexp.MustCompile(`[A-Z]\w+`).ReplaceAllStringFunc(text, func(word string) string {
		if name, ok := json[word]; ok {
			return name
		}
		return word
	})
	rest, cut := strings.CutPrefix(text, self)
	if !cut || self == "" {
		return text
	}
	rest = strings.TrimPrefix(strings.TrimSpace(rest), "is ")
	if rest == "" {
		return ""
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

func jsonNames(st *ast.StructType) map[string]string {
	names := map[string]string{}
	for _, field := range st.Fields.List {
		if field.Tag == nil {
			continue
		}
		tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
		for _, ident := range field.Names {
			names[ident.Name], _, _ = strings.Cut(tag.Get("json"), ",")
		}
	}
	return names
}

func mentions(text, name string) bool {
	return name != "" && regexp.MustCompile(`\b`+regexp.QuoteMeta(name)+`\b`).MatchString(text)
}
