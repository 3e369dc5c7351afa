package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"
)

const requestIDHeader = "X-Request-Id"

// exchange is one request and its answer, as the access log sees it. It is the
// http.ResponseWriter of every handler.
type exchange struct {
	http.ResponseWriter
	id    string
	start time.Time
	// route is the pattern that matched; empty if none did.
	route  string
	status int
	bytes  int64
	// background is the id of the background request that the answer is about,
	// replays the id of the request whose answer is given again.
	background, replays string
	// err is what the request failed with.
	err error
}

func (s *server) newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	e := &exchange{ResponseWriter: w, id: requestID(r.Header.Get(requestIDHeader)), start: s.now()}
	h := w.Header()
	h.Set(requestIDHeader, e.id)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	return e
}

// idKey is the context key of the request's id.
type idKey struct{}

// exchangeID returns the id of the request that ctx belongs to.
func exchangeID(ctx context.Context) string {
	id, _ := ctx.Value(idKey{}).(string)
	return id
}

// WriteHeader notes the status and sends it.
func (e *exchange) WriteHeader(status int) {
	if e.status == 0 {
		e.status = status
	}
	e.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes and sends them.
func (e *exchange) Write(b []byte) (int, error) {
	if e.status == 0 {
		e.status = http.StatusOK
	}
	n, err := e.ResponseWriter.Write(b)
	e.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// requestID takes the client's id if it is short and plain enough for a log
// line, else makes one.
func requestID(given string) string {
	const limit = 128
	if given != "" && len(given) <= limit && plain(given) {
		return given
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // It never fails.
	return "req-" + hex.EncodeToString(b[:])
}

func plain(s string) bool {
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '_' && c != '.' && c != ':' {
			return false
		}
	}
	return true
}

// errPanic marks an error that was a panic.
var errPanic = errors.New("panic")

// finish turns a panic into an internal error and logs the exchange. It must be
// deferred directly.
func (s *server) finish(e *exchange, r *http.Request) {
	p := recover()
	if p == http.ErrAbortHandler { //nolint:errorlint // It is the value that net/http compares with.
		panic(p)
	}
	if p != nil {
		err := fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack())
		if e.status != 0 {
			// Half an answer is out: only a cut connection tells the client.
			e.err = err
			s.logExchange(e, r)
			panic(http.ErrAbortHandler)
		}
		s.fail(e, err)
	}
	s.logExchange(e, r)
}

func (s *server) logExchange(e *exchange, r *http.Request) {
	attrs := []slog.Attr{
		slog.String("request_id", e.id), slog.String("method", r.Method), slog.String("route", e.route),
		slog.String("path", r.URL.EscapedPath()), slog.Int("status", e.status), slog.Int64("bytes", e.bytes),
		slog.Float64("duration_ms", float64(s.now().Sub(e.start).Microseconds())/1000), slog.String("remote", r.RemoteAddr),
	}
	if e.background != "" {
		attrs = append(attrs, slog.String("background_id", e.background))
	}
	if e.replays != "" {
		attrs = append(attrs, slog.String("replays", e.replays))
	}
	if e.err != nil {
		attrs = append(attrs, slog.String("code", string(problem(e.err, e.id).Code)), slog.Any("error", e.err))
	}
	s.log.LogAttrs(context.WithoutCancel(r.Context()), e.level(r), "http request", attrs...)
}

// level is Error for what an operator must look at, Debug for what nobody
// needs: probes, and clients that went away.
func (e *exchange) level(r *http.Request) slog.Level {
	switch {
	case r.Context().Err() != nil && errors.Is(e.err, context.Canceled):
		return slog.LevelDebug
	case e.status >= http.StatusInternalServerError:
		return slog.LevelError
	case e.route == statusPath && e.err == nil:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
