package qmp_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/pandovm/pando/internal/qemu/qmp"
)

func itoa(n int) string { return strconv.Itoa(n) }

// FuzzClient lets a hostile QEMU say anything after its greeting: the client
// must end, with every call answered and no goroutine left.
func FuzzClient(f *testing.F) {
	for _, seed := range []string{
		`{"return": {}, "id": 1}`,
		`{"return": {}, "id": 1}` + "\n" + `{"event": "STOP", "timestamp": {"seconds": 1, "microseconds": 2}}` + "\n" + `{"return": {"status": "x"}, "id": 2}`,
		`{"return": {}, "id": 1}` + "\n" + `{"error": {"class": "GenericError", "desc": "x"}, "id": 2}`,
		`{"event": "X", "data": null, "timestamp": {"seconds": -1, "microseconds": -1}}`,
		`{"QMP": {}}`, "\r\n\r\n", `{"id": 18446744073709551615}`, `{"return": null, "id": 1}`,
		`{"timestamp": {"seconds": 9223372036854775807, "microseconds": 9223372036854775807}, "event": "X"}`,
		"\x00", `{"return"`, `nul`, `"\ud800"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		dir, err := os.MkdirTemp("", "qmp")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		listener, err := net.Listen("unix", filepath.Join(dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		served := make(chan struct{})
		go func() {
			defer close(served)
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(append([]byte(hello+"\n"), said...))
			_ = conn.Close()
		}()
		c, err := qmp.Dial(t.Context(), filepath.Join(dir, "s"))
		<-served
		if err != nil {
			return
		}
		events, cancel := c.Subscribe(4)
		defer cancel()
		_ = c.Execute(t.Context(), "query-status", nil, &struct{ Status string }{})
		<-c.Done()
		if c.Err() == nil {
			t.Error("ended without a reason")
		}
		if n := count(events); n > 4 {
			t.Errorf("%d events in a channel of 4", n)
		}
		_ = c.Close()
	})
}
