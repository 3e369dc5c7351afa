package guest_test

import (
	"testing"
	"time"

	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/guest/guesttest"
	"github.com/pandovm/pando/internal/link"
)

func TestSmoke(t *testing.T) {
	g := guesttest.Start(t)
	l, c, err := guest.Dial(t.Context(), g.Socket, link.FreshToken(), link.Epoch{Number: 3, NextToken: link.NewToken()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Logf("%+v", c)
	for range 3 {
		s := time.Now()
		r, err := l.Exec(t.Context(), guest.ExecOrder{Command: "cat; echo err >&2; exit 7", Stdin: []byte("hallo"), Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %s %+v %d %v", r.Stdout, r.Stderr, r, *r.ExitCode, time.Since(s))
	}
}
