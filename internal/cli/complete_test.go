package cli_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/pandovm/pando/api"
)

// catalogue serves a few VMs, snapshots and images.
func catalogue(t *testing.T) http.Handler {
	t.Helper()
	nameless := exampleVM()
	nameless.ID, nameless.Slug, nameless.State = "vm-9999", nil, api.StatePaused
	hostile := exampleVM()
	hostile.ID, hostile.Slug, hostile.DisplayName = "vm-8888", new("worker"), new("\x1b[31mred\n")
	mux := http.NewServeMux()
	mux.Handle("GET /v5/vms", reply(t, 200, api.VMList{VMs: []api.VM{exampleVM(), nameless, hostile}}))
	mux.Handle("GET /v5/snapshots", reply(t, 200, api.SnapshotList{Snapshots: []api.Snapshot{{ID: "sh-1", Slug: new("ready")}, {ID: "sh-2"}}}))
	mux.Handle("GET /v5/images", reply(t, 200, api.ImageList{Images: exampleImages()}))
	return mux
}

// completed is what the shells are offered, without descriptions.
func completed(t *testing.T, l *lab, args ...string) []string {
	t.Helper()
	if code := l.run(t.Context(), append([]string{"__complete"}, args...)...); code != 0 {
		t.Fatalf("code %d: %s", code, l.err.String())
	}
	var words []string
	for line := range strings.Lines(l.out.String()) {
		if !strings.HasPrefix(line, ":") {
			w, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			words = append(words, w)
		}
	}
	return words
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	l := newLab(t, catalogue(t))
	web := exampleVM().ID
	for line, want := range map[string][]string{
		"vm get |":                 {"web", "vm-9999", "worker"},
		"vm get w|":                {"web", "worker"},
		"vm get vm-|":              {web, "vm-9999", "vm-8888"},
		"vm get web |":             nil,
		"vm rm web |":              {"vm-9999", "worker"},
		"vm exec |":                {"web", "vm-9999", "worker"},
		"vm exec web |":            nil,
		"vm create |":              {"ready", "sh-2", "pando/debian", "pando/busybox"},
		"vm create pando/d|":       {"pando/debian"},
		"snapshot rm |":            {"ready", "sh-2"},
		"image show pando/b|":      {"pando/busybox"},
		"vm ls --state |":          {"starting", "running", "pausing", "paused", "stopped"},
		"vm fork web --identity |": {"new", "keep"},
		"top --sort |":             {"cpu", "memory", "disk", "name"},
		"vm sn|":                   {"snapshot"},
	} {
		got := completed(t, l, strings.Split(strings.TrimSuffix(line, "|"), " ")...)
		if !slices.Equal(got, want) {
			t.Errorf("%s gives %q, want %q", line, got, want)
		}
	}
	if l.run(t.Context(), "__complete", "vm", "get", "wo"); strings.ContainsAny(l.out.String(), "\x1b\r") {
		t.Errorf("a name of others reaches the terminal as it is: %q", l.out.String())
	}
}

// A daemon that does not answer, or that answers with an error, has no names:
// nothing appears in the line that a person is typing.
func TestCompletionIsSilent(t *testing.T) {
	t.Parallel()
	broken := newLab(t, reply(t, 500, api.Error{Code: api.CodeInternal, Message: "broken"}))
	absent := newLab(t, nil)
	absent.env["PANDO_URL"] = "http://127.0.0.1:1"
	wrong := newLab(t, nil)
	wrong.env["PANDO_URL"] = "no address"
	for name, l := range map[string]*lab{"broken": broken, "absent": absent, "wrong": wrong} {
		for _, args := range [][]string{{"vm", "get", ""}, {"snapshot", "rm", ""}, {"image", "show", ""}, {"vm", "create", ""}} {
			if got := completed(t, l, args...); len(got) > 0 {
				t.Errorf("%s: %q gives %q", name, args, got)
			}
		}
	}
}
