package qmp_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hello = `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian"}, "capabilities": ["oob"]}}`

// server is a scripted QEMU: the test says what it reads and what it answers.
type server struct {
	t    *testing.T
	conn *net.UnixConn
	in   *bufio.Reader
	fds  []int // received with the bytes read so far
}

// command is what the server got.
type command struct {
	Execute   string          `json:"execute"`
	Arguments json.RawMessage `json:"arguments"`
	ID        uint64          `json:"id"`
}

// socketDir is a short one: t.TempDir names the test.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "qmp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// listen serves one connection with script, in the background.
func listen(t *testing.T, script func(*server)) (sock string) {
	t.Helper()
	sock = filepath.Join(socketDir(t), "qmp.sock")
	serve(t, sock, script)
	return sock
}

func serve(t *testing.T, sock string, script func(*server)) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		defer conn.Close()
		s := &server{t: t, conn: conn}
		s.in = bufio.NewReader(s)
		script(s)
	}()
	t.Cleanup(func() { _ = listener.Close(); <-ended })
}

// greet does what every QEMU does first.
func (s *server) greet() {
	s.say(hello)
	s.answer(s.next(), `{}`)
}

// say writes one line. A client that has gone away is the test's business.
func (s *server) say(line string) { _, _ = s.conn.Write([]byte(line + "\r\n")) }

func (s *server) answer(c command, result string) {
	s.say(fmt.Sprintf(`{"return": %s, "id": %d}`, result, c.ID))
}

func (s *server) event(name string) {
	s.say(fmt.Sprintf(`{"event": %q, "data": {"n": 1}, "timestamp": {"seconds": 1700000000, "microseconds": 500000}}`, name))
}

// next reads one command.
func (s *server) next() command {
	line, err := s.in.ReadBytes('\n')
	if err != nil {
		return command{}
	}
	var c command
	if err := json.Unmarshal(line, &c); err != nil {
		s.t.Errorf("command %q: %v", line, err)
	}
	return c
}

// idle reads until the client has gone.
func (s *server) idle() {
	for {
		if _, err := s.in.ReadByte(); err != nil {
			return
		}
	}
}

// Read collects descriptors on the way.
func (s *server) Read(p []byte) (int, error) {
	oob := make([]byte, 256)
	n, oobn, _, _, err := s.conn.ReadMsgUnix(p, oob)
	if err == nil && n == 0 {
		return 0, errors.New("client closed")
	}
	messages, parseErr := unix.ParseSocketControlMessage(oob[:oobn])
	for _, message := range messages {
		fds, rightsErr := unix.ParseUnixRights(&message)
		s.fds = append(s.fds, fds...)
		parseErr = errors.Join(parseErr, rightsErr)
	}
	return n, errors.Join(err, parseErr)
}
