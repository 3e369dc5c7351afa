package qmp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// MaxLine is the longest line accepted from QEMU, in bytes.
const MaxLine = 16 << 20

// ErrLineTooLong says that QEMU sent a line of more than MaxLine bytes.
var ErrLineTooLong = errors.New("qmp line too long")

// Event is something that happened in QEMU without a command asking for it.
type Event struct {
	// Name is QEMU's name for it, for example "SHUTDOWN".
	Name string
	// Data is the event's own object; nil if it has none.
	Data json.RawMessage
	// Time is QEMU's reading of the host's clock.
	Time time.Time
}

// CommandError is QEMU's refusal of a command. The connection stays usable.
type CommandError struct {
	Command string
	// Class is the stable part, for example "GenericError".
	Class string
	// Desc is prose for a person.
	Desc string
}

// Error returns the command and QEMU's description.
func (e *CommandError) Error() string {
	return fmt.Sprintf("qemu refused %s: %s", e.Command, e.Desc)
}

// message is any line that QEMU sends: exactly one of Greeting, Event, Error
// and Return is set.
type message struct {
	Greeting  *greeting       `json:"QMP"`
	Event     string          `json:"event"`
	Data      json.RawMessage `json:"data"`
	Timestamp timestamp       `json:"timestamp"`
	ID        *uint64         `json:"id"`
	Return    json.RawMessage `json:"return"`
	Error     *wireError      `json:"error"`
}

type greeting struct {
	Version struct {
		QEMU struct {
			Major int `json:"major"`
			Minor int `json:"minor"`
			Micro int `json:"micro"`
		} `json:"qemu"`
		Package string `json:"package"`
	} `json:"version"`
}

type wireError struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

// timestamp is {"seconds": -1} when QEMU could not read the clock.
type timestamp struct {
	Seconds      int64 `json:"seconds"`
	Microseconds int64 `json:"microseconds"`
}

func (t timestamp) time() time.Time {
	if t.Seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(t.Seconds, 1000*min(max(t.Microseconds, 0), 999_999))
}

// request is a command as it goes out.
type request struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
	ID        uint64 `json:"id"`
}

// decoder reads messages from a stream, each bounded by limit bytes.
type decoder struct {
	r     *bufio.Reader
	limit int
}

func newDecoder(r io.Reader, limit int) *decoder {
	return &decoder{r: bufio.NewReaderSize(r, 16<<10), limit: limit}
}

// next returns the next message; blank lines are skipped. An unfinished last
// line is io.ErrUnexpectedEOF.
func (d *decoder) next() (message, error) {
	for {
		line, err := d.line()
		if err != nil {
			return message{}, err
		}
		if len(line) == 0 {
			continue
		}
		return decode(line)
	}
}

// line returns one line without its end. The slice is valid until the next call.
func (d *decoder) line() ([]byte, error) {
	var long []byte
	for {
		part, err := d.r.ReadSlice('\n')
		if len(long)+len(part) > d.limit {
			return nil, ErrLineTooLong
		}
		switch {
		case err == nil && long == nil:
			return trimEnd(part), nil
		case err == nil:
			return trimEnd(append(long, part...)), nil
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long, part...)
		case errors.Is(err, io.EOF) && len(long)+len(part) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

func trimEnd(line []byte) []byte {
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	return line
}

// decode parses one line and insists that it is exactly one kind of message.
func decode(line []byte) (message, error) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, fmt.Errorf("decode qmp line: %w", err)
	}
	kinds := 0
	for _, set := range []bool{m.Greeting != nil, m.Event != "", m.Return != nil, m.Error != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return message{}, fmt.Errorf("decode qmp line: %d kinds of message in one", kinds)
	}
	return m, nil
}
