package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
)

const (
	ndjson = "application/x-ndjson"
	// pingAfter is how long a stream of events may be silent.
	pingAfter = 10 * time.Second
	// offsetHeader says where in an output the bytes of an answer begin.
	offsetHeader = "X-Exec-Offset"
)

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// handleStream makes a route that takes a JSON body and whose handler writes the
// answer itself. The handler returns an error only while it has written nothing.
func handleStream[Req any](op Operation, f func(http.ResponseWriter, *http.Request, call[Req]) error) route {
	op.Request, op.Response = bodyType[Req](true), typeOf[api.ExecEvent]()
	return route{Operation: op, handler: func(w http.ResponseWriter, r *http.Request) error {
		in, err := decodeCall[Req](w, r, op)
		if err != nil {
			return err
		}
		return f(w, r, in)
	}}
}

// streamFirst answers with the first event alone.
func (s *server) streamFirst(w http.ResponseWriter, out command.Output) error {
	e, err := out.Next()
	if err != nil {
		return err
	}
	l := execEvents{w: w}
	l.begin()
	_ = l.event(e) // the client may be gone
	return nil
}

// streamEvents answers with events until the output ends or the client leaves.
func (s *server) streamEvents(w http.ResponseWriter, r *http.Request, out command.Output) error {
	l := &execEvents{w: w, flush: http.NewResponseController(w).Flush}
	l.begin()
	stop := l.pings()
	defer stop()
	for {
		e, err := out.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			l.fail(err, exchangeID(r.Context()))
			return nil
		}
		if l.event(e) != nil {
			return nil
		}
	}
}

// execEvents writes events as lines of JSON.
type execEvents struct {
	w     http.ResponseWriter
	flush func() error

	mu sync.Mutex
	// last is when something was written.
	last time.Time
	buf  []byte
}

func (l *execEvents) begin() {
	l.w.Header().Set("Content-Type", ndjson)
	l.w.WriteHeader(http.StatusOK)
}

// pings keeps the client sure that somebody is there.
func (l *execEvents) pings() (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(pingAfter)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				l.ping()
			}
		}
	}()
	return func() { close(done); <-stopped }
}

func (l *execEvents) ping() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.last) >= pingAfter {
		// Who has left is noticed by whoever waits for the next event.
		_ = l.write(append(l.buf[:0], `{"type":"ping"}`...))
	}
}

// event writes one event.
func (l *execEvents) event(e command.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Chunk != nil {
		return l.write(appendChunk(l.buf[:0], e.Chunk))
	}
	o := execObject(*e.Info)
	return l.object(api.ExecEvent{Type: api.EventExec, Exec: &o})
}

func (l *execEvents) fail(err error, requestID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := problem(err, requestID)
	_ = l.object(api.ExecEvent{Type: api.EventError, Error: &p})
}

func (l *execEvents) object(e api.ExecEvent) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return l.write(append(l.buf[:0], b...))
}

func (l *execEvents) write(line []byte) error {
	l.buf = append(line, '\n')
	l.last = time.Now()
	if _, err := l.w.Write(l.buf); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if l.flush == nil {
		return nil
	}
	return l.flush()
}

// appendChunk encodes a piece of output. It is what a command that prints much
// costs the daemon, so it makes no garbage.
func appendChunk(b []byte, c *command.Chunk) []byte {
	b = append(b, `{"type":"output","stream":"`...)
	b = append(b, c.Stream...)
	b = append(b, `","seq":`...)
	b = strconv.AppendInt(b, c.Seq, 10)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, c.Offset, 10)
	if utf8.Valid(c.Data) {
		b = append(b, `,"text":`...)
		b = appendText(b, c.Data)
	} else {
		b = append(b, `,"data":"`...)
		b = base64.StdEncoding.AppendEncode(b, c.Data)
		b = append(b, '"')
	}
	return append(b, '}')
}

// appendText encodes UTF-8 as a JSON string.
func appendText(b, text []byte) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i, c := range text {
		if c >= 0x20 && c != '"' && c != '\\' && c != 0x7f {
			continue
		}
		b = append(b, text[start:i]...)
		start = i + 1
		switch c {
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		case '"', '\\':
			b = append(b, '\\', c)
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, text[start:]...), '"')
}

// execOutput answers with the events of both outputs, or with the bytes of one.
func (s *server) execOutput(w http.ResponseWriter, r *http.Request, c call[none]) error {
	out, err := s.commands.Follow(r.Context(), c.ref, command.Follow{
		ID: c.sub, Stream: command.Stream(c.query["stream"]), Offset: c.query.size("offset", 0), Seq: c.query.size("seq", 0),
		Wait: c.query["follow"] == "true",
	})
	if err != nil {
		return err
	}
	defer out.Close()
	if c.query["stream"] == "" {
		return s.streamEvents(w, r, out)
	}
	return streamBytes(w, out, c.query.size("offset", 0), c.query["stream"])
}

// streamBytes answers with the bytes of one output. An answer that is not whole
// is cut off, so that nobody takes it for one that is.
func streamBytes(w http.ResponseWriter, out command.Output, at int64, stream string) error {
	e, err := out.Next()
	if err != nil {
		return err
	}
	from := e.Info.StdoutFrom
	if stream == string(command.Stderr) {
		from = e.Info.StderrFrom
	}
	at = max(at, from)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(offsetHeader, strconv.FormatInt(at, 10))
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	_ = flush()
	for {
		e, err := out.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil || e.Chunk != nil && e.Chunk.Offset != at {
			panic(http.ErrAbortHandler)
		}
		if e.Chunk == nil {
			continue
		}
		at += int64(len(e.Chunk.Data))
		if _, err := w.Write(e.Chunk.Data); err != nil {
			return nil //nolint:nilerr // the client is gone
		}
		if flush() != nil {
			return nil //nolint:nilerr // see above
		}
	}
}
