package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/terminal"
)

const (
	// MaxTerminalMessage bounds one message of a terminal's client, in bytes.
	MaxTerminalMessage = 1 << 20
	// pingEvery is how often a client is asked whether it is there, and
	// socketPatience how long it may take to say so, or to take what it is sent.
	pingEvery      = 30 * time.Second
	socketPatience = 60 * time.Second
)

// socket is a terminal's WebSocket.
type socket struct {
	conn *websocket.Conn
	view *terminal.View
	ctx  context.Context //nolint:containedctx // it lives as long as the socket
	// typing is set while input waits for the program: then nothing is read, so
	// no pong is either.
	typing atomic.Bool
}

// showTerminal upgrades the request and connects client and view until one of
// them ends. The handshake has been checked.
func (s *server) showTerminal(w http.ResponseWriter, r *http.Request, v *terminal.View) error {
	defer v.Close()
	// The key is in a header, which no foreign page can make a browser send: the
	// origin does not matter.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		s.log.Debug("accept websocket", "error", err)
		return nil // it has answered
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(MaxTerminalMessage)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	k := &socket{conn: conn, view: v, ctx: ctx}
	done := make(chan struct{}, 2)
	go func() { //nolint:contextcheck // k has it
		defer func() { done <- struct{}{} }()
		defer v.Close()
		k.read()
	}()
	go func() { //nolint:contextcheck // k has it
		defer func() { done <- struct{}{} }()
		k.ping()
	}()
	k.write() //nolint:contextcheck // k has it
	cancel()
	_ = conn.CloseNow()
	<-done
	<-done
	return nil
}

// write sends what the session shows, until it ends or the client does not take
// it.
func (k *socket) write() {
	first := k.view.Session()
	if k.send(api.PTYFrame{
		Type: api.PTYFrameSessionInfo, SessionID: first.ID, Slug: first.Slug, Created: &first.New,
	}) != nil {
		return
	}
	for {
		e, err := k.view.Next()
		if err != nil {
			k.farewell(err)
			return
		}
		if k.event(e) != nil {
			return
		}
	}
}

func (k *socket) event(e terminal.Event) error {
	switch {
	case e.Exited:
		return k.send(api.PTYFrame{Type: api.PTYFrameExited, ExitCode: &e.ExitCode})
	case e.Message != "":
		return k.send(api.PTYFrame{Type: api.PTYFrameError, Message: e.Message})
	}
	return k.message(websocket.MessageBinary, e.Output)
}

func (k *socket) send(f api.PTYFrame) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return k.message(websocket.MessageText, text)
}

func (k *socket) message(kind websocket.MessageType, p []byte) error {
	ctx, cancel := context.WithTimeout(k.ctx, socketPatience)
	defer cancel()
	return k.conn.Write(ctx, kind, p)
}

// farewell says why the socket is closed.
func (k *socket) farewell(err error) {
	switch f := fault.As(err); {
	case errors.Is(err, io.EOF):
		_ = k.conn.Close(websocket.StatusNormalClosure, "the session was closed")
	case errors.Is(err, terminal.ErrEnding):
		_ = k.conn.Close(websocket.StatusGoingAway, "the daemon is ending; the session goes on: attach again")
	case f != nil:
		_ = k.send(api.PTYFrame{Type: api.PTYFrameError, Message: f.Message})
		_ = k.conn.Close(websocket.StatusInternalError, "the session is out of reach")
	default:
		_ = k.conn.Close(websocket.StatusNormalClosure, "")
	}
}

// read does what the client says until it leaves.
func (k *socket) read() {
	for {
		kind, p, err := k.conn.Read(k.ctx)
		if err != nil {
			return
		}
		k.typing.Store(true)
		if kind == websocket.MessageBinary {
			_, err = k.view.Write(p)
		} else {
			err = k.order(p)
		}
		k.typing.Store(false)
		if err != nil && !k.report(err) {
			return
		}
	}
}

// order carries a text frame out.
func (k *socket) order(p []byte) error {
	var f api.PTYFrame
	if err := json.Unmarshal(p, &f); err != nil {
		return fault.BadField("frame", "is not the JSON of a frame")
	}
	switch f.Type {
	case api.PTYFrameResize:
		return k.view.Resize(f.Cols, f.Rows)
	case api.PTYFrameSignal:
		n, ok := terminal.SignalNumber(f.Signal)
		if !ok {
			return fault.BadField("signal", "%q is not the name of a signal", clip(f.Signal))
		}
		return k.view.Signal(n)
	}
	return fault.BadField("type", "%q is not the type of a frame", clip(f.Type))
}

// report tells the client what was wrong with its frame, and whether to go on.
func (k *socket) report(err error) bool {
	f := fault.As(err)
	return f != nil && k.send(api.PTYFrame{Type: api.PTYFrameError, Message: f.Message}) == nil
}

// ping finds clients that are gone without a word.
func (k *socket) ping() {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-k.ctx.Done():
			return
		}
		if k.typing.Load() {
			continue
		}
		ctx, cancel := context.WithTimeout(k.ctx, socketPatience)
		err := k.conn.Ping(ctx)
		cancel()
		if err != nil && !k.typing.Load() {
			_ = k.conn.CloseNow()
			return
		}
	}
}
