package cli_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRequests: what the flags mean on the wire.
func TestRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing to change": {[]string{"vm", "update", "web"}, `{}`},
		"update": {
			[]string{
				"vm", "update", "web", "--slug", "", "--replace-slug", "--name", "Web", "--metadata", "a=", "--metadata", "b=c=d", "--restart=false",
				"--idle-timeout", "90s", "--auto-delete", "0", "--ttl", "never", "--max-run", "36h", "--max-run-total", "-1",
			},
			`{"slug":"","reassignSlug":true,"displayName":"Web","idleTimeoutSeconds":90,"autoDeleteSeconds":0,"ttlSeconds":-1,` +
				`"maxRunSeconds":129600,"maxRunTotalSeconds":-1,"automaticRestart":false,"metadata":{"a":"","b":"c=d"}}`,
		},
		"ephemeral": {[]string{"vm", "update", "web", "--ephemeral"}, `{"autoDeleteSeconds":0}`},
		"create": {
			[]string{
				"vm", "create", "base", "--slug", "web", "--replace-slug", "--ephemeral", "--idle-timeout", "15m", "--no-restart",
				"--apart-from", "app=db,tier=1", "--apart-from", "app=web",
			},
			`{"snapshotId":"base","slug":"web","reassignSlug":true,"idleTimeoutSeconds":900,"autoDeleteSeconds":0,"automaticRestart":false,` +
				`"placement":{"antiAffinity":[{"topology":"node","selector":{"matchLabels":{"app":"db","tier":"1"}}},` +
				`{"topology":"node","selector":{"matchLabels":{"app":"web"}}}]},"firewall":{"rules":[]},"identity":"new"}`,
		},
		"snapshot": {
			[]string{"snapshot", "create", "web", "--slug", "s", "--auto-delete", "1h", "--ttl", "2h"},
			`{"slug":"s","autoDeleteSeconds":3600,"ttlSeconds":7200}`,
		},
		"snapshot update": {
			[]string{"snapshot", "update", "s", "--slug", "", "--auto-delete", "never"}, `{"slug":"","autoDeleteSeconds":-1}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var body string
			l := newLab(t, record(t, &body, reply(t, http.StatusOK, map[string]any{})))
			if code := l.run(t.Context(), c.args...); code != 0 {
				t.Fatalf("exit %d: %s", code, l.err.String())
			}
			if diff := cmp.Diff(c.want, body); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestFilters: what the flags of the lists mean on the wire.
func TestFilters(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"/v5/vms": {"vm", "ls"},
		"/v5/vms?limit=2&metadata=a%3Ab%2Cc%3Ad&offset=1&search=x&slug=s&snapshotId=sh&state=paused": {
			"vm", "ls", "--state", "paused", "--slug", "s", "--snapshot", "sh", "--search", "x", "--metadata", "c=d", "--metadata", "a=b",
			"--limit", "2", "--offset", "1",
		},
		"/v5/snapshots?limit=2&offset=1&search=x&sourceVmId=web": {
			"snapshot", "ls", "--source", "web", "--search", "x", "--limit", "2", "--offset", "1",
		},
	} {
		var got string
		answer := reply(t, http.StatusOK, map[string]any{})
		l := newLab(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.URL.String()
			answer(w, r)
		}))
		if code := l.run(t.Context(), args...); code != 0 {
			t.Fatalf("exit %d: %s", code, l.err.String())
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
