package e2e

import (
	"bytes"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
	pando "github.com/pandovm/pando/sdk"
)

// seen reads until the output holds want.
func seen(t *testing.T, term *pando.Terminal, want string) string {
	t.Helper()
	var all bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.Contains(all.String(), want) {
		n, err := term.Read(buf)
		all.Write(buf[:n])
		if err != nil {
			t.Fatalf("waiting for %q, got %v after %.2000q", want, err, all.String())
		}
	}
	return all.String()
}

func typed(t *testing.T, term *pando.Terminal, text string) {
	t.Helper()
	if _, err := io.WriteString(term, text); err != nil {
		t.Fatalf("type %q: %v", text, err)
	}
}

func attached(t *testing.T, l *testlab.Lab, ref, name string) *pando.Terminal {
	t.Helper()
	term, err := l.Client.VMs.Terminals(ref).Attach(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = term.Close() })
	return term
}

// A session goes on through the loss of its client, a pause, a fork and the
// death of the daemon, and each child of a fork has its own.
func TestTerminalsLiveOn(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	term, err := l.Client.VMs.Terminals(v.ID).Open(t.Context(), pando.TerminalOptions{
		Exec: "n=0; echo begun; while read x; do n=$((n+1)); echo $x-$n.; done; exit 9", Slug: "main",
	})
	if err != nil {
		t.Fatal(err)
	}
	seen(t, term, "begun")
	typed(t, term, "one\n")
	seen(t, term, "one-1.")
	if err := term.Close(); err != nil {
		t.Fatal(err)
	}

	back := attached(t, l, v.ID, "main")
	seen(t, back, "one-1.")
	if _, err := l.Client.VMs.Pause(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	typed(t, back, "two\n") // wakes the VM
	seen(t, back, "two-2.")

	forks, err := l.Client.VMs.Fork(t.Context(), v.ID, api.ForkVMRequest{Count: new(1)})
	if err != nil || forks.Forks[0].VM == nil {
		t.Fatalf("%+v, %v", forks, err)
	}
	child := attached(t, l, forks.Forks[0].VM.ID, "main")
	seen(t, child, "two-2.")
	typed(t, child, "child\n")
	seen(t, child, "child-3.")
	typed(t, back, "source\n")
	if out := seen(t, back, "source-3."); strings.Contains(out, "child") {
		t.Errorf("the source shows what was typed in the child: %q", out)
	}

	l.Restart(syscall.SIGKILL)
	again := attached(t, l, v.ID, "main")
	seen(t, again, "source-3.")
	typed(t, again, "\x04")
	if _, err := io.Copy(io.Discard, again); err != nil {
		t.Fatal(err)
	}
	if code, err := again.Wait(); code != 9 || err != nil {
		t.Errorf("ended with %d, %v", code, err)
	}
}
