package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/link"
)

const (
	// dialPause is between two attempts to connect to a socket that is not there yet.
	dialPause = 2 * time.Millisecond
	// maxStale bounds what is thrown away in search of the confirmation. A guest
	// that has more than this to say does not listen.
	maxStale = 64 << 20
	// clockBound is how uncertain the guest's clock may be before it is set again:
	// the epoch's time is as old as the guest was slow to take it.
	clockBound = 50 * time.Millisecond
	clockTries = 4
)

// Dial connects to the agent socket at sock, opens the epoch e and returns once
// the guest has confirmed all of it. It waits, until ctx is done, for the socket
// to appear and for the agent to answer: the agent may still be booting, and the
// VM may not even run yet.
//
// Token is what the agent expects: link.FreshToken for an agent that has never
// confirmed an epoch, else the NextToken of the last epoch that it confirmed. The
// caller chooses e.NextToken and keeps it before it calls; a Dial that failed may
// be repeated with the same token, and with NextToken if the process died before
// it learned the outcome. The fresh token is no substitute for a NextToken: a guest
// that was frozen or slow when one host left and the next one came has noticed no
// hang-up, and takes nothing but the secret one. Time is set here; ReplyNonce and Entropy are made here
// if they are empty.
//
// The error is fault VM_NON_RESPONSIVE with reason epoch_unconfirmed if the guest
// did not confirm in time or said that a part of the epoch failed.
func Dial(ctx context.Context, sock string, token link.Token, e link.Epoch) (*Link, link.Confirmation, error) {
	if err := complete(&e, token); err != nil {
		return nil, link.Confirmation{}, err
	}
	conn, err := connect(ctx, sock)
	if err != nil {
		return nil, link.Confirmation{}, unconfirmed("connect to the agent's socket", err)
	}
	l, c, err := open(ctx, conn, token, e)
	if err != nil {
		return nil, c, errors.Join(err, conn.Close())
	}
	if err := l.adjustClock(ctx, &c); err != nil {
		return nil, c, errors.Join(unconfirmed("set the clock", err), l.Close())
	}
	return l, c, nil
}

// complete fills in what the caller left empty and refuses what would lock the
// host out of the guest.
func complete(e *link.Epoch, token link.Token) error {
	if token.IsZero() || e.NextToken.IsZero() || e.NextToken == link.FreshToken() {
		return errors.New("open epoch: token or next token is empty or public")
	}
	if e.ReplyNonce.IsZero() {
		e.ReplyNonce = link.NewToken()
	}
	if len(e.Entropy) == 0 {
		e.Entropy = make([]byte, 64)
		_, _ = rand.Read(e.Entropy)
	}
	return nil
}

func unconfirmed(what string, err error) error {
	f := &fault.Error{
		Code: api.CodeVMNonResponsive, Reason: api.ReasonEpochUnconfirmed,
		Message: "the guest did not confirm its epoch: " + what,
		Remedy:  "start the VM again, or create it anew from its snapshot",
	}
	return f.With(err)
}

func connect(ctx context.Context, sock string) (net.Conn, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unix", sock)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(dialPause):
		}
	}
}

// open exchanges preamble and confirmation and starts HTTP/2.
func open(ctx context.Context, conn net.Conn, token link.Token, e link.Epoch) (*Link, link.Confirmation, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c, rest, err := handshake(conn, token, e)
	if err != nil {
		return nil, c, unconfirmed("exchange the epoch", errors.Join(err, context.Cause(ctx)))
	}
	if err := check(e, c); err != nil {
		return nil, c, unconfirmed(err.Error(), nil)
	}
	if !stop() {
		return nil, c, unconfirmed("exchange the epoch", context.Cause(ctx))
	}
	l, err := newLink(ctx, conn, rest)
	if err != nil {
		return nil, c, unconfirmed("start the session", err)
	}
	return l, c, nil
}

// handshake returns the confirmation and what was read beyond it.
func handshake(conn net.Conn, token link.Token, e link.Epoch) (link.Confirmation, []byte, error) {
	e.Time = time.Now().UnixNano()
	body, _ := e.MarshalBinary()
	message, err := link.AppendMessage(nil, token, body)
	if err == nil {
		_, err = conn.Write(message)
	}
	if err != nil {
		return link.Confirmation{}, nil, fmt.Errorf("send preamble: %w", err)
	}
	return awaitConfirmation(conn, e.ReplyNonce)
}

// awaitConfirmation drops everything before nonce: an earlier session's bytes may
// still be on their way.
func awaitConfirmation(conn net.Conn, nonce link.Token) (c link.Confirmation, rest []byte, err error) {
	var finder link.Finder
	finder.Expect(nonce)
	buf := make([]byte, 32<<10)
	for dropped := 0; dropped < maxStale; {
		n, err := conn.Read(buf)
		if _, end := finder.Find(buf[:n]); end > 0 {
			return readConfirmation(conn, buf, buf[end:n])
		}
		if err != nil {
			return c, nil, fmt.Errorf("await confirmation: %w", err)
		}
		dropped += n
	}
	return c, nil, fmt.Errorf("await confirmation: none in %d bytes", maxStale)
}

// readConfirmation reads the record that follows the nonce; p, a part of buf, is
// what was read of it so far.
func readConfirmation(conn net.Conn, buf, p []byte) (c link.Confirmation, rest []byte, err error) {
	var body link.Body
	for {
		rest, done, err := body.Take(p)
		if err != nil {
			return c, nil, fmt.Errorf("read confirmation: %w", err)
		}
		if done {
			return c, append([]byte(nil), rest...), c.UnmarshalBinary(body.Bytes())
		}
		n, err := conn.Read(buf)
		if n == 0 && err != nil {
			return c, nil, fmt.Errorf("read confirmation: %w", err)
		}
		p = buf[:n]
	}
}

// check tells what of e the guest has not confirmed.
func check(e link.Epoch, c link.Confirmation) error {
	switch {
	case c.Error != "":
		return fmt.Errorf("the agent reports: %.200q", c.Error)
	case c.Number != e.Number:
		return fmt.Errorf("the agent confirmed epoch %d instead of %d", c.Number, e.Number)
	case !c.ClockSet:
		return errors.New("the clock is not set")
	case !c.Reseeded:
		return errors.New("the random generator is not reseeded")
	case e.Identity != nil && !c.IdentitySet:
		return errors.New("the identity is not set")
	case !isWord(c.AgentVersion) || !isWord(c.KernelRelease):
		return errors.New("the agent reports an unreadable version")
	}
	return nil
}

// isWord tells whether s can be shown and stored without harm.
func isWord(s string) bool {
	if len(s) > 128 {
		return false
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// adjustClock sets the guest's clock again while the time between our sending and
// its answer leaves it uncertain by more than clockBound. The guest is never
// ahead of what it was sent, so the answer's age bounds the error. On a host that
// is too busy for a quick exchange the best of a few tries has to do.
func (l *Link) adjustClock(ctx context.Context, c *link.Confirmation) error {
	for range clockTries {
		behind := time.Since(time.Unix(0, c.ClockUnixNs))
		if behind >= 0 && behind <= clockBound {
			return nil
		}
		r, err := l.request(ctx, link.PathClock, link.AppendClock(nil, time.Now().UnixNano()))
		if err != nil {
			return err
		}
		c.ClockUnixNs = r.ClockUnixNs
	}
	return nil
}
