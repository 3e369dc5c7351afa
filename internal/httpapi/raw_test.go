package httpapi_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/snapshot"
	"github.com/pandovm/pando/internal/vm"
)

func request(method, target, body string) string {
	return method + " " + target + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nConnection: close\r\n" + body
}

// TestEscapedSlash sends what clients escape, byte by byte: an escaped slash
// never ends a segment.
func TestEscapedSlash(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var asked string
	l.vms.get = func(_ context.Context, ref string) (vm.VM, error) {
		asked = ref
		return vm.VM{}, fault.NotFound("vm", ref)
	}
	l.snapshots.get = func(_ context.Context, ref string) (snapshot.Snapshot, error) {
		asked = ref
		return snapshot.Snapshot{}, fault.NotFound("snapshot", ref)
	}
	for target, want := range map[string]string{
		"/v5/snapshots/pando%2Fdebian": "pando/debian", "/v5/snapshots/a%2fb%2Fc": "a/b/c", "/v5/vms/a%2Fb": "a/b",
		"/v5/vms/a%252Fb": "a%2Fb", "/v5/vms/..%2F..%2Fstatus": "../../status", "/v5/vms/a%00b": "a\x00b", "/v5/vms/a%2Fstart": "a/start",
		"/v5/snapshots/%E2%82%AC%2F%20": "€/ ",
	} {
		l.raw(request("GET", target, "\r\n")).failed(404, api.CodeNotFound, "")
		if asked != want {
			t.Errorf("%s asked for %q, want %q", target, asked, want)
		}
	}
	for _, target := range []string{"/v5/snapshots/pando/debian", "/v5/vms/a/b", "/v5/vms/../status", "/v5//vms"} {
		l.raw(request("GET", target, "\r\n")).failed(404, api.CodeRouteNotFound, "")
	}
	l.raw(request("POST", "/v5/vms/a/b/start", "Content-Length: 0\r\n\r\n")).failed(404, api.CodeRouteNotFound, "")
	started := ""
	l.vms.start = func(_ context.Context, ref string) (vm.VM, error) {
		started = ref
		return vm.VM{}, fault.NotFound("vm", ref)
	}
	l.raw(request("POST", "/v5/vms/a%2Fb/start", "Content-Length: 0\r\n\r\n")).failed(404, api.CodeNotFound, "")
	if started != "a/b" {
		t.Errorf("started %q", started)
	}
}

// TestBrokenBodies: half a body, a socket whose other half is closed, and
// lengths that lie are refused, and nothing is called.
func TestBrokenBodies(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.raw(request("POST", "/v5/vms", "Content-Length: 999999999999\r\n\r\n{}")).failed(413, api.CodePayloadTooLarge, "body")
	l.raw(request("POST", "/v5/firewall/rules", "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nzz\r\n")).failed(400, api.CodeBadRequest, "body")

	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(l.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request("POST", "/v5/tls", "Content-Length: 100\r\n\r\n{\"action\"")); err != nil {
		t.Fatal(err)
	}
	half, ok := conn.(*net.TCPConn)
	if !ok {
		t.Fatal("the connection is not TCP")
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || !strings.Contains(string(answer), `"field":"body"`) {
		t.Errorf("got %q, %v", answer, err)
	}
}
