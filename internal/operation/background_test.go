package operation_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/operation"
)

// desk is a Background whose late answers are noted.
type desk struct {
	*operation.Background
	t    *testing.T
	mu   sync.Mutex
	late map[string]operation.Answer
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{Background: operation.NewBackground(), t: t, late: map[string]operation.Answer{}}
	return d
}

func mine() operation.Origin { return operation.Origin{Owner: "me", Operation: "op", Ref: "x"} }

func (d *desk) run(ctx context.Context, after time.Duration, work func(context.Context) operation.Answer) (operation.Answer, string) {
	d.t.Helper()
	a, id, err := d.Run(ctx, mine(), after, work, func(id string, a operation.Answer) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.late[id] = a
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return a, id
}

func (d *desk) close() {
	d.t.Helper()
	if err := d.Close(d.t.Context()); err != nil {
		d.t.Error(err)
	}
}

// lasting is work that takes a while and then answers.
func lasting(d time.Duration, a operation.Answer) func(context.Context) operation.Answer {
	return func(ctx context.Context) operation.Answer {
		select {
		case <-time.After(d):
			return a
		case <-ctx.Done():
			return operation.Answer{Status: 503, Err: ctx.Err()}
		}
	}
}

func answer(status int, body string) operation.Answer {
	return operation.Answer{Status: status, Header: map[string][]string{"A": {"b"}}, Body: []byte(body), RequestID: "req"}
}

func code(err error) api.Code {
	if f := fault.As(err); f != nil {
		return f.Code
	}
	return ""
}

func TestInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		defer d.close()
		a, id := d.run(t.Context(), 5*time.Second, lasting(4*time.Second, answer(200, "in line")))
		if id != "" || a.Status != 200 || string(a.Body) != "in line" {
			t.Errorf("got %+v under %q", a, id)
		}
		if len(d.late) != 0 {
			t.Errorf("an answer in line was late: %v", d.late)
		}
	})
}

func TestLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		defer d.close()
		// The client leaves as soon as it has its promise.
		ctx, leave := context.WithCancel(t.Context())
		want := answer(418, "later")
		_, id := d.run(ctx, 5*time.Second, lasting(time.Minute, want))
		leave()
		if id == "" {
			t.Fatal("work that lasts was answered in line")
		}
		if _, done, err := d.Result("me", id); done || err != nil {
			t.Errorf("under way: got %v, %v", done, err)
		}
		if _, _, err := d.Result("you", id); code(err) != api.CodeNotFound {
			t.Errorf("another owner: got %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for range 2 {
			got, done, err := d.Result("me", id)
			want.Replayed = true
			if diff := cmp.Diff(want, got); diff != "" || !done || err != nil {
				t.Errorf("done %v, error %v, -want +got:\n%s", done, err, diff)
			}
		}
		if d.late[id].Status != 418 {
			t.Errorf("nobody heard of the end: %v", d.late)
		}
		time.Sleep(operation.DefaultKeepResult - 6*time.Second)
		if _, _, err := d.Result("me", id); err != nil {
			t.Errorf("expired too early: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, _, err := d.Result("me", id); code(err) != api.CodeNotFound {
			t.Errorf("did not expire: %v", err)
		}
	})
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	defer d.close()
	for _, id := range []string{"", "bgr-", "bgr-0", "../x", string(make([]byte, 10_000))} {
		_, _, err := d.Result("me", id)
		if f := fault.As(err); f == nil || f.Code != api.CodeNotFound || len(f.Message) > 1000 {
			t.Errorf("%.20q: got %.100v", id, err)
		}
	}
}

// TestClientLeavesInLine: nobody can fetch an answer that was not promised.
func TestClientLeavesInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		defer d.close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a, id := d.run(ctx, 5*time.Second, lasting(time.Hour, answer(200, "")))
		if id != "" || !errors.Is(a.Err, context.Canceled) {
			t.Errorf("got %+v under %q, want cancelled work", a, id)
		}
	})
}

func TestUnstorable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		defer d.close()
		big := operation.Answer{Status: 200, Body: make([]byte, operation.MaxResultBytes+1)}
		_, id := d.run(t.Context(), 0, lasting(time.Second, big))
		time.Sleep(time.Second)
		synctest.Wait()
		_, done, err := d.Result("me", id)
		if code(err) != api.CodeBackgroundResultUnstorable || !done {
			t.Errorf("got %v, %v", done, err)
		}
		// In line its size does not matter.
		if a, _ := d.run(t.Context(), time.Minute, lasting(0, big)); len(a.Body) != len(big.Body) {
			t.Error("a large answer in line was cut")
		}
	})
}

// TestMemoryIsBounded: what does not fit any more is honestly refused, what was
// kept stays, and room comes back with time.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		defer d.close()
		body := make([]byte, operation.MaxResultBytes-1<<10)
		var ids []string
		for range 5 {
			_, id := d.run(t.Context(), 0, lasting(time.Second, operation.Answer{Status: 200, Body: body}))
			time.Sleep(time.Second)
			ids = append(ids, id)
		}
		synctest.Wait()
		for i, id := range ids {
			_, _, err := d.Result("me", id)
			if want := i < 4; (err == nil) != want {
				t.Errorf("answer %d: %v", i, err)
			}
		}
		time.Sleep(operation.DefaultKeepResult)
		synctest.Wait()
		_, id := d.run(t.Context(), 0, lasting(time.Second, operation.Answer{Status: 200, Body: body}))
		time.Sleep(time.Second)
		synctest.Wait()
		if _, _, err := d.Result("me", id); err != nil {
			t.Errorf("after the others expired: %v", err)
		}
	})
}

// TestTooMany: beyond the limit requests are answered in line.
func TestTooMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		defer d.close()
		for range operation.MaxBackground {
			if _, id := d.run(t.Context(), 0, lasting(time.Minute, answer(200, ""))); id == "" {
				t.Fatal("not admitted")
			}
		}
		a, id := d.run(t.Context(), 0, lasting(time.Minute, answer(200, "waited")))
		if id != "" || string(a.Body) != "waited" {
			t.Errorf("got %+v under %q", a, id)
		}
	})
}

func TestCloseWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		_, id := d.run(t.Context(), 0, lasting(3*time.Second, answer(200, "whole")))
		d.close()
		if a := d.late[id]; string(a.Body) != "whole" {
			t.Errorf("work was not let finish: %+v", a)
		}
		if _, _, err := d.Run(t.Context(), mine(), 0, lasting(0, operation.Answer{}), nil); code(err) != api.CodeUnavailable {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestCloseCancels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		_, id := d.run(t.Context(), 0, lasting(time.Hour, answer(200, "whole")))
		grace, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Close(grace); err != nil {
			t.Error(err)
		}
		if a := d.late[id]; !errors.Is(a.Err, context.Canceled) {
			t.Errorf("work was not cancelled: %+v", a)
		}
	})
}

// TestCloseGivesUp: the daemon ends even if work does not.
func TestCloseGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		stuck := make(chan struct{})
		d.run(t.Context(), 0, func(context.Context) operation.Answer {
			<-stuck
			return operation.Answer{}
		})
		grace, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.Close(grace); err == nil {
			t.Error("work that does not end went unnoticed")
		}
		close(stuck)
	})
}
