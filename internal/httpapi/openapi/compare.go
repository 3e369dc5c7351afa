package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Breaks lists what clients of the document before cannot do with the one now:
// removed paths, operations, answers, fields and values, changed types, and
// fields and parameters that became required. Additions break nothing.
func Breaks(before, now []byte) ([]string, error) {
	var old, current map[string]any
	if err := json.Unmarshal(before, &old); err != nil {
		return nil, fmt.Errorf("read the document before: %w", err)
	}
	if err := json.Unmarshal(now, &current); err != nil {
		return nil, fmt.Errorf("read the document now: %w", err)
	}
	c := &comparison{old: old, now: current, seen: map[string]bool{}}
	for _, path := range slices.Sorted(maps.Keys(member(old, "paths"))) {
		c.path(path, member(old, "paths", path), member(current, "paths", path))
	}
	return c.breaks, nil
}

type comparison struct {
	old, now map[string]any
	breaks   []string
	// seen are the components that were compared, per direction.
	seen map[string]bool
}

func (c *comparison) add(format string, args ...any) {
	c.breaks = append(c.breaks, fmt.Sprintf(format, args...))
}

func (c *comparison) path(path string, old, now map[string]any) {
	if now == nil {
		c.add("%s is gone", path)
		return
	}
	for _, method := range slices.Sorted(maps.Keys(old)) {
		name := method + " " + path
		was, is := member(old, method), member(now, method)
		if is == nil {
			c.add("%s is gone", name)
			continue
		}
		c.parameters(name, was["parameters"], is["parameters"])
		c.body(name, member(was, "requestBody"), member(is, "requestBody"))
		c.responses(name, member(was, "responses"), member(is, "responses"))
	}
}

// parameters compares by place and name.
func (c *comparison) parameters(name string, old, now any) {
	was, is := c.byName(c.old, old), c.byName(c.now, now)
	for _, key := range slices.Sorted(maps.Keys(was)) {
		if is[key] == nil {
			c.add("%s: the parameter %s is gone", name, key)
			continue
		}
		c.schema(name+" "+key, member(was[key], "schema"), member(is[key], "schema"), request)
	}
	for _, key := range slices.Sorted(maps.Keys(is)) {
		if is[key]["required"] == true && (was[key] == nil || was[key]["required"] != true) {
			c.add("%s: the parameter %s became required", name, key)
		}
	}
}

func (c *comparison) byName(doc map[string]any, list any) map[string]map[string]any {
	out := map[string]map[string]any{}
	items, _ := list.([]any)
	for _, item := range items {
		p, _ := item.(map[string]any)
		p = resolve(doc, p)
		out[fmt.Sprint(p["in"], " ", p["name"])] = p
	}
	return out
}

func (c *comparison) body(name string, old, now map[string]any) {
	if now["required"] == true && old["required"] != true {
		c.add("%s: a body became required", name)
	}
	if old != nil && now == nil {
		c.add("%s: takes no body any more", name)
	}
	c.content(name+" request", member(old, "content"), member(now, "content"), request)
}

// responses compares successful answers. Codes of errors may be added and
// taken away: clients must expect any.
func (c *comparison) responses(name string, old, now map[string]any) {
	for _, status := range slices.Sorted(maps.Keys(old)) {
		if status[0] != '2' {
			continue
		}
		is := member(now, status)
		if is == nil {
			c.add("%s: the answer %s is gone", name, status)
			continue
		}
		was := resolve(c.old, member(old, status))
		c.content(name+" "+status, member(was, "content"), member(resolve(c.now, is), "content"), response)
	}
}

func (c *comparison) content(name string, old, now map[string]any, d direction) {
	for _, kind := range slices.Sorted(maps.Keys(old)) {
		if now[kind] == nil {
			c.add("%s: %s is gone", name, kind)
			continue
		}
		c.schema(name, member(old, kind, "schema"), member(now, kind, "schema"), d)
	}
}

// direction says who writes a value: what a client reads may not lose anything,
// and what it writes may not need anything more.
type direction string

const (
	request  direction = "request"
	response direction = "response"
)

func (c *comparison) schema(name string, old, now map[string]any, d direction) {
	if ref, ok := old["$ref"].(string); ok {
		key := string(d) + " " + ref + " " + fmt.Sprint(now["$ref"])
		if c.seen[key] {
			return
		}
		c.seen[key] = true
		name = ref
	}
	old, now = resolve(c.old, old), resolve(c.now, now)
	if old == nil || now == nil {
		return
	}
	c.types(name, old, now, d)
	c.values(name, old, now, d)
	c.properties(name, old, now, d)
	for _, key := range []string{"items", "additionalProperties"} {
		c.schema(name+" "+key, member(old, key), member(now, key), d)
	}
	for i, option := range list(old["anyOf"]) {
		if options := list(now["anyOf"]); i < len(options) {
			c.schema(name, option, options[i], d)
		}
	}
}

// types: a client must be able to read what it read, and to write what it wrote.
func (c *comparison) types(name string, old, now map[string]any, d direction) {
	was, is := names(old["type"]), names(now["type"])
	if d == response {
		was, is = is, was
	}
	for _, t := range was {
		if len(is) > 0 && !slices.Contains(is, t) {
			c.add("%s: the type changed from %v to %v", name, old["type"], now["type"])
			return
		}
	}
	if d == request && len(was) == 0 && len(is) > 0 && old["anyOf"] == nil && old["$ref"] == nil {
		c.add("%s: the type was narrowed to %v", name, now["type"])
	}
}

// values: a value that may be sent stays one. New values in answers are
// additions, which clients must expect.
func (c *comparison) values(name string, old, now map[string]any, d direction) {
	was, is := names(old["enum"]), names(now["enum"])
	for _, v := range was {
		if len(is) > 0 && !slices.Contains(is, v) {
			c.add("%s: the value %q is gone", name, v)
		}
	}
	if d == request && len(was) == 0 && len(is) > 0 {
		c.add("%s: only some values are left", name)
	}
}

func (c *comparison) properties(name string, old, now map[string]any, d direction) {
	was, is := member(old, "properties"), member(now, "properties")
	for _, field := range slices.Sorted(maps.Keys(was)) {
		if is[field] == nil {
			c.add("%s: the field %s is gone", name, field)
			continue
		}
		c.schema(name+"."+field, member(was, field), member(is, field), d)
	}
	before, after := names(old["required"]), names(now["required"])
	if d == response {
		before, after = after, before
	}
	for _, field := range after {
		if slices.Contains(before, field) {
			continue
		}
		if d == request {
			c.add("%s: the field %s became required", name, field)
		} else if is[field] != nil {
			c.add("%s: the field %s may be absent now", name, field)
		}
	}
}

// resolve follows a reference.
func resolve(doc, s map[string]any) map[string]any {
	ref, ok := s["$ref"].(string)
	if !ok {
		return s
	}
	var kind, name string
	if n, err := fmt.Sscanf(ref, "#/components/%s", &name); n != 1 || err != nil {
		return nil
	}
	for i := range name {
		if name[i] == '/' {
			kind, name = name[:i], name[i+1:]
			break
		}
	}
	return member(doc, "components", kind, name)
}

// member walks down objects; nil if one is missing.
func member(v map[string]any, path ...string) map[string]any {
	for _, key := range path {
		v, _ = v[key].(map[string]any)
	}
	return v
}

func list(v any) []map[string]any {
	var out []map[string]any
	items, _ := v.([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// names reads a string or a list of strings.
func names(v any) []string {
	if s, ok := v.(string); ok {
		return []string{s}
	}
	var out []string
	items, _ := v.([]any)
	for _, item := range items {
		out = append(out, fmt.Sprint(item))
	}
	return out
}
