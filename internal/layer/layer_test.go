package layer_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/layer"
)

func TestParseID(t *testing.T) {
	t.Parallel()
	good := layer.NewID()
	if got, err := layer.ParseID(string(good)); err != nil || got != good {
		t.Errorf("ParseID(%q) = %q, %v", good, got, err)
	}
	if layer.NewID() == good {
		t.Error("two ids are equal")
	}
	for _, bad := range []string{
		"", "ly-", "ly-0123", strings.ToUpper(string(good)), string(good) + "0", "../" + string(good)[3:],
		"sh" + string(good)[2:], strings.Replace(string(good), string(good)[5:6], "/", 1), "ly-" + strings.Repeat("g", 32),
	} {
		if _, err := layer.ParseID(bad); err == nil {
			t.Errorf("ParseID(%q) did not fail", bad)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add(string(layer.NewID()))
	f.Add("ly-0123456789abcdef0123456789abcdeF")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := layer.ParseID(s)
		if err != nil {
			return
		}
		raw, err := id.Bytes()
		if err != nil || string(layer.IDFromBytes(raw)) != s {
			t.Errorf("%q is not what its bytes give: %v", s, err)
		}
		if strings.ContainsAny(s, "/\x00.") {
			t.Errorf("%q is no safe file name", s)
		}
	})
}

func TestLayerJSON(t *testing.T) {
	t.Parallel()
	l := layer.Layer{ID: "ly-0123456789abcdef0123456789abcdef", Kind: layer.KindMemory, Bytes: 4096, SHA256: "ab"}
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"id":"ly-0123456789abcdef0123456789abcdef","kind":"memory","bytes":4096,"sha256":"ab"}`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Error(diff)
	}
}
