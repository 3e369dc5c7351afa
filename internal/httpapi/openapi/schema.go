package openapi

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"
)

type schema map[string]any

// schemas collects the components that bodies refer to.
type schemas struct {
	comments *Comments
	limits   map[string]schema
	done     map[string]schema
	// missing lists what has no comment, used the limits that named a field.
	missing []string
	used    map[string]bool
}

// of is the schema of a type; structs become components.
func (s *schemas) of(t reflect.Type) schema {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return schema{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return nullable(s.of(t.Elem()))
	case t.Kind() == reflect.Struct && t.Name() != "" && t.NumField() > 0:
		s.component(t)
		return schema{"$ref": "#/components/schemas/" + t.Name()}
	}
	switch t.Kind() {
	case reflect.Struct:
		return schema{"type": "object", "additionalProperties": false}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return schema{}
		}
		return schema{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return schema{"type": "integer"}
	case reflect.Float64:
		return schema{"type": "number"}
	case reflect.String:
		return s.text(t)
	default:
		return schema{} // Any JSON value.
	}
}

// text is a string; a named type with constants has only those values.
func (s *schemas) text(t reflect.Type) schema {
	out := schema{"type": "string"}
	values := s.comments.Values(t.Name())
	if len(values) == 0 || t.PkgPath() == "" {
		return out
	}
	var enum []string
	meaning := map[string]string{}
	for _, v := range values {
		enum = append(enum, v.Value)
		meaning[v.Value] = v.Comment
	}
	out["enum"], out["x-enum-descriptions"] = enum, meaning
	return out
}

func (s *schemas) component(t reflect.Type) {
	if _, ok := s.done[t.Name()]; ok {
		return
	}
	c := schema{"type": "object", "description": s.comments.types[t.Name()]}
	s.done[t.Name()] = c
	properties, required := schema{}, []string{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		properties[name] = s.field(t, f)
		if !strings.Contains(options, "omitempty") {
			required = append(required, name)
		}
	}
	c["properties"] = properties
	if len(required) > 0 {
		c["required"] = required
	}
}

func (s *schemas) field(t reflect.Type, f reflect.StructField) schema {
	key := t.Name() + "." + f.Name
	out := maps.Clone(s.of(f.Type))
	comment := s.comments.fields[key]
	_, refers := out["$ref"]
	if comment == "" && !refers && !refersInside(out) {
		s.missing = append(s.missing, key)
	}
	if comment != "" {
		out["description"] = comment
	}
	if limits, ok := s.limits[key]; ok {
		s.used[key] = true
		maps.Copy(out, limits)
		maps.DeleteFunc(out, func(_ string, v any) bool { return v == nil })
	}
	return out
}

// refersInside reports whether the value is described where it is defined.
func refersInside(s schema) bool {
	if items, ok := s["items"].(schema); ok {
		_, ok = items["$ref"]
		return ok
	}
	_, ok := s["anyOf"]
	return ok
}

func nullable(s schema) schema {
	if t, ok := s["type"].(string); ok {
		out := maps.Clone(s)
		out["type"] = []string{t, "null"}
		return out
	}
	return schema{"anyOf": []schema{s, {"type": "null"}}}
}

// check fails if a field has no comment or a limit names no field.
func (s *schemas) check() error {
	if len(s.missing) > 0 {
		return fmt.Errorf("fields without a comment: %s", strings.Join(s.missing, ", "))
	}
	for key := range s.limits {
		if !s.used[key] {
			return fmt.Errorf("a limit is set for %s, which is no field", key)
		}
	}
	return nil
}
