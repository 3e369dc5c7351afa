package agent

import (
	"time"

	"github.com/pandovm/pando/internal/agent/http2"
)

// session is one connection with a host, from the confirmation of its epoch to
// the next preamble or hang-up.
type session struct {
	port    Port
	conn    *http2.Conn
	written chan struct{} // closed when the writer has returned
}

// openSession starts to write head, and then what the connection has to say.
func openSession(port Port, head []byte, handle http2.Handler) *session {
	s := &session{port: port, conn: http2.NewConn(handle), written: make(chan struct{})}
	go s.write(head)
	return s
}

func (s *session) write(b []byte) {
	defer close(s.written)
	for ok := true; ok; {
		if _, err := s.port.Write(b); err != nil {
			s.conn.Close(err)
			return
		}
		b, ok = s.conn.Take(b)
	}
}

func (s *session) feed(p []byte) {
	// An error has closed the connection; the host notices that its requests
	// are not answered and starts anew.
	_ = s.conn.Feed(p)
}

// end closes the connection and returns when the port is free for the next one.
func (s *session) end() {
	s.conn.Close(http2.ErrClosed)
	_ = s.port.SetWriteDeadline(time.Unix(1, 0))
	<-s.written
	_ = s.port.SetWriteDeadline(time.Time{})
}
