package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// bodyPatience is how long a body may take to arrive. The server has no timeout
// for whole requests, since a command may run for a day.
const bodyPatience = 30 * time.Second

// decodeBody reads the body of a request into v, a pointer to a struct. An
// empty body is an empty object.
func decodeBody(w http.ResponseWriter, r *http.Request, op Operation, v any) error {
	data, err := readBody(w, r, op.MaxBody)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}")
	}
	return decodeObject(data, op, v)
}

func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	conn := http.NewResponseController(w)
	// Not every writer has a connection, and one without needs no deadline.
	_ = conn.SetReadDeadline(time.Now().Add(bodyPatience))
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	_ = conn.SetReadDeadline(time.Time{})
	var exceeded *http.MaxBytesError
	switch {
	case errors.As(err, &exceeded):
		return nil, tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fault.BadField("body", "did not arrive in time").Hint("send it within %s", bodyPatience).With(err)
	case err != nil:
		return nil, fault.BadField("body", "broke off").Hint("send it whole").With(err)
	}
	return data, nil
}

func tooLarge(limit int64) error {
	f := &fault.Error{Code: api.CodePayloadTooLarge, Field: "body", Message: "body: is too large"}
	return f.Hint("send at most %d bytes", limit)
}

// decodeObject decodes strictly, unlike encoding/json: names match exactly,
// null stands only where a value may be absent, and errors name the field by
// its path.
func decodeObject(data []byte, op Operation, v any) error {
	if !utf8.Valid(data) {
		return notJSON("it is not UTF-8")
	}
	var whole json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(data, &whole); errors.As(err, &syntax) {
		return notJSON("%s at byte %d", syntax, syntax.Offset)
	} else if err != nil {
		return notJSON("%s", err)
	}
	if jsonKind(whole) != "object" {
		return notJSON("it is a JSON %s, and an object is expected", jsonKind(whole))
	}
	d := decoder{lenient: op.Lenient, unsupported: op.Unsupported}
	return d.object("", whole, reflect.ValueOf(v).Elem())
}

func notJSON(format string, args ...any) error {
	return fault.BadField("body", format, args...).Hint("send one JSON object in UTF-8")
}

// decoder decodes one body. The rules for unknown fields are those of the
// outermost object; objects inside are closed.
type decoder struct {
	lenient     bool
	unsupported []string
}

func (d decoder) object(path string, raw json.RawMessage, v reflect.Value) error {
	members, err := membersOf(path, raw)
	if err != nil {
		return err
	}
	fields := fieldsOf(v.Type())
	for _, name := range slices.Sorted(maps.Keys(members)) {
		index, known := fields[name]
		if !known {
			if err := d.unknown(path, name, members[name], fields); err != nil {
				return err
			}
			continue
		}
		if err := d.value(path+name, members[name], v.Field(index)); err != nil {
			return err
		}
	}
	return nil
}

func (d decoder) value(path string, raw json.RawMessage, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		if jsonKind(raw) == "null" {
			return nil
		}
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(path, raw, v.Elem())
	case reflect.Struct:
		return decoder{}.object(path+".", raw, v)
	case reflect.Map:
		return d.mapping(path, raw, v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			return d.list(path, raw, v)
		}
		return d.leaf(path, raw, v)
	default:
		return d.leaf(path, raw, v)
	}
}

func (d decoder) mapping(path string, raw json.RawMessage, v reflect.Value) error {
	if jsonKind(raw) == "null" {
		return nil
	}
	members, err := membersOf(path, raw)
	if err != nil {
		return err
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(members)))
	for _, name := range slices.Sorted(maps.Keys(members)) {
		elem := reflect.New(v.Type().Elem()).Elem()
		if err := d.value(path+"."+name, members[name], elem); err != nil {
			return err
		}
		v.SetMapIndex(reflect.ValueOf(name), elem)
	}
	return nil
}

// list decodes an array of objects, which are closed like all inner ones.
func (d decoder) list(path string, raw json.RawMessage, v reflect.Value) error {
	if jsonKind(raw) == "null" {
		return nil
	}
	var items []json.RawMessage
	if jsonKind(raw) != "array" || json.Unmarshal(raw, &items) != nil {
		return wrongType(path, "an array", raw)
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		if err := d.value(fmt.Sprintf("%s[%d]", path, i), item, v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

func (d decoder) leaf(path string, raw json.RawMessage, v reflect.Value) error {
	if jsonKind(raw) == "null" && v.Kind() != reflect.Slice && v.Kind() != reflect.Interface {
		return wrongType(path, expected(v.Type()), raw)
	}
	if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil {
		return wrongType(path, expected(v.Type()), raw)
	}
	return nil
}

// unknown decides about a field that the body's type does not have.
func (d decoder) unknown(path, name string, raw json.RawMessage, fields map[string]int) error {
	switch {
	case slices.Contains(d.unsupported, name):
		if !meansNone(raw) {
			return unsupported(path + name)
		}
		return nil
	case d.lenient:
		return nil
	}
	f := fault.BadField(clip(path+name), "this request has no such field")
	if len(fields) == 0 {
		return f.Hint("leave it out: the request takes no fields")
	}
	return f.Hint("its fields are: %s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
}

func unsupported(field string) error {
	return fault.BadField(field, "is not supported by this version").Hint("leave it out, or set it to a value that means none")
}

// meansNone reports whether a value asks for nothing: null, false, -1 (never),
// "" and collections of nothing.
func meansNone(raw json.RawMessage) bool {
	var v any
	return json.Unmarshal(raw, &v) == nil && isNone(v)
}

func isNone(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case float64:
		return v == -1
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, member := range v {
			if !isNone(member) {
				return false
			}
		}
		return true
	}
	return false
}

func membersOf(path string, raw json.RawMessage) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if jsonKind(raw) != "object" || json.Unmarshal(raw, &members) != nil {
		return nil, wrongType(strings.TrimSuffix(path, "."), "an object", raw)
	}
	return members, nil
}

// fieldsOf maps the JSON names of a struct to its fields.
func fieldsOf(t reflect.Type) map[string]int {
	fields := make(map[string]int, t.NumField())
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = f.Index[0]
	}
	return fields
}

func wrongType(path, want string, raw json.RawMessage) error {
	got := jsonKind(raw)
	// What stands in a transform is secret.
	if got == "number" && !strings.Contains(path, "transform[") {
		got = "the number " + clip(string(raw))
	}
	return fault.BadField(clip(path), "expected %s, got %s", want, got).Hint("send %s", want)
}

// expected names a Go type in the words of JSON.
func expected(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		return "an integer"
	case reflect.Bool:
		return "a boolean"
	case reflect.Slice:
		return "an array"
	case reflect.String:
		return "a string"
	default:
		return "another type"
	}
}

// jsonKind names the type of a valid JSON text by its first byte.
func jsonKind(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// clip bounds what an error repeats of the request.
func clip(s string) string {
	const limit = 100
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
