package guest_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/guest/guesttest"
	"github.com/pandovm/pando/internal/link"
)

func TestDialConfirmsEverything(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t)
	e := epoch(42)
	e.Entropy = []byte("sixty-four bytes of entropy, more or less, as the host made them")
	e.Identity = &link.Identity{Hostname: "h", MachineID: "m", BootID: "b", SSHHostKeys: []link.HostKey{{Type: "ed25519"}}}
	before := time.Now()
	l, c, err := guest.Dial(t.Context(), g.Socket, link.FreshToken(), e)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := time.Unix(0, c.ClockUnixNs); got.Before(before) || got.After(time.Now()) {
		t.Errorf("guest's clock is %v, dialled at %v", got, before)
	}
	c.ClockUnixNs = 0
	want := link.Confirmation{
		Number: 42, AgentVersion: link.Version, Reseeded: true, ClockSet: true, IdentitySet: true, KernelRelease: "6.1.0-test",
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("confirmation (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]link.Identity{*e.Identity}, g.System.Identities()); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([][]byte{e.Entropy}, g.System.Entropy()); diff != "" {
		t.Errorf("entropy (-want +got):\n%s", diff)
	}
	if err := l.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDialMakesEntropyAndKeepsIdentity(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t)
	for n := range 2 {
		l := dial(t, g.Socket, link.FreshToken(), epoch(int64(n)))
		_ = l.Close()
	}
	seeds := g.System.Entropy()
	if len(seeds) != 2 || len(seeds[0]) != 64 || string(seeds[0]) == string(seeds[1]) {
		t.Errorf("two epochs were seeded with %x", seeds)
	}
	if ids := g.System.Identities(); len(ids) != 0 {
		t.Errorf("identity was set, to %v, without an order", ids)
	}
}

// A guest that is slow to take the epoch ends up with the right time all the same.
func TestDialCorrectsTheClock(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t)
	g.System.Lag(time.Hour)
	_, c, err := dialOnce(t, g.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if off := time.Since(g.System.Now()); off > time.Minute {
		t.Errorf("guest's clock is behind by %v", off)
	}
	if off := time.Since(time.Unix(0, c.ClockUnixNs)); off > time.Minute {
		t.Errorf("the confirmation says that the clock is behind by %v", off)
	}
	if n := g.System.ClockSets(); n < 2 {
		t.Errorf("clock was set %d times", n)
	}
}

func dialOnce(t *testing.T, sock string) (*guest.Link, link.Confirmation, error) {
	t.Helper()
	l, c, err := guest.Dial(t.Context(), sock, link.FreshToken(), epoch(1))
	if err == nil {
		t.Cleanup(func() { _ = l.Close() })
	}
	return l, c, err
}

func wantUnconfirmed(t *testing.T, err error) {
	t.Helper()
	f := fault.As(err)
	if f == nil || f.Code != api.CodeVMNonResponsive || f.Reason != api.ReasonEpochUnconfirmed || f.Remedy == "" {
		t.Errorf("error is %v (%+v), want VM_NON_RESPONSIVE, epoch_unconfirmed, with a remedy", err, f)
	}
}

func TestDialFailsIfAPartFails(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t)
	g.System.Fail(errors.New("read-only file system"))
	_, _, err := dialOnce(t, g.Socket)
	wantUnconfirmed(t, err)
	g.System.Fail(nil)
	if _, _, err := dialOnce(t, g.Socket); err != nil {
		t.Errorf("after the failure: %v", err)
	}
}

func TestDialWaitsForTheSocket(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t)
	later := filepath.Join(t.TempDir(), "later.sock")
	dialled := make(chan error, 1)
	go func() {
		_, _, err := dialOnce(t, later)
		dialled <- err
	}()
	if err := os.Symlink(g.Socket, later); err != nil {
		t.Fatal(err)
	}
	if err := <-dialled; err != nil {
		t.Error(err)
	}
}

func TestDialGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	silent := filepath.Join(dir, "silent.sock")
	l, err := net.Listen("unix", silent)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, sock := range []string{silent, filepath.Join(dir, "absent.sock")} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, _, err := guest.Dial(ctx, sock, link.FreshToken(), epoch(1))
		cancel()
		wantUnconfirmed(t, err)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v does not tell that the time was up", err)
		}
	}
}

func TestDialRefusesUnusableTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ token, next link.Token }{
		"no token":      {link.Token{}, link.NewToken()},
		"no next token": {link.FreshToken(), link.Token{}},
		"public next":   {link.NewToken(), link.FreshToken()},
	} {
		if _, _, err := guest.Dial(t.Context(), "", c.token, link.Epoch{NextToken: c.next}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestLinkOutlivesTheContextOfDial(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	l, _, err := guest.Dial(ctx, g.Socket, link.FreshToken(), epoch(1))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cancel()
	if err := l.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOrdersToTheSystem(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t)
	l := dial(t, g.Socket, link.FreshToken(), epoch(1))
	if err := l.Sync(t.Context()); err != nil || g.System.Syncs() != 1 {
		t.Errorf("sync: %v, %d times", err, g.System.Syncs())
	}
	g.System.Settle(false, "starting")
	s, err := l.Settled(t.Context())
	if diff := cmp.Diff(guest.Settlement{State: "starting"}, s); diff != "" || err != nil {
		t.Errorf("settled: %v\n%s", err, diff)
	}
	g.System.Settle(true, "degraded", "a.service", "b.service")
	s, err = l.Settled(t.Context())
	want := guest.Settlement{Settled: true, State: "degraded", Failed: []string{"a.service", "b.service"}}
	if diff := cmp.Diff(want, s); diff != "" || err != nil {
		t.Errorf("settled: %v\n%s", err, diff)
	}
	if err := l.Poweroff(t.Context()); err != nil {
		t.Errorf("power off: %v", err)
	}
	_ = l.Ping(t.Context()) // answered after the order was begun
}

func TestDone(t *testing.T) {
	t.Parallel()
	g := guesttest.Start(t)
	ours := dial(t, g.Socket, link.FreshToken(), epoch(1))
	select {
	case <-ours.Done():
		t.Error("done while open")
	default:
	}
	for range 2 {
		if err := ours.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	<-ours.Done()
	if _, err := ours.Exec(t.Context(), guest.ExecOrder{Command: "true"}); fault.As(err) == nil {
		t.Errorf("exec on a closed link: %v", err)
	}
	theirs := dial(t, g.Socket, link.FreshToken(), epoch(1))
	g.Stop()
	<-theirs.Done()
}
