package upgrade

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/agent/sysfile"
	"github.com/pandovm/pando/internal/link"
)

// versionTimeout is how long a new agent may take to say its version.
const versionTimeout = 20 * time.Second

// busyPause is between two attempts to run a program that is still open for writing.
const busyPause = 20 * time.Millisecond

// farewell is how long the old agent waits for the host to have read its answer.
const farewell = 2 * time.Second

// Service changes the agent. It is safe for concurrent use.
type Service struct {
	// File is the agent's program, Mark the file that says that it is on trial;
	// its folder exists or is made.
	File, Mark string
	// Running names what would be cut off.
	Running func() []string
	// Takeover starts FILE.old as a guard with the patience given and runs FILE in
	// place of this process. It returns only if that failed.
	Takeover func(patience time.Duration) error

	mu sync.Mutex
}

func (s *Service) old() string { return s.File + ".old" }

// Upgrade serves one PathUpgrade request.
func (s *Service) Upgrade(st *http2.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, patience := s.receive(st)
	body, _ := r.MarshalBinary()
	_, err := st.Write(link.AppendFrame(nil, link.FrameReply, body))
	if err != nil || r.Error != "" {
		return
	}
	select {
	case <-st.Done():
	case <-time.After(farewell):
	}
	_ = s.Takeover(patience)
	// Still here: the agent that runs goes on, and so does its file.
	_ = s.Revert()
}

// receive puts the new agent in its place.
func (s *Service) receive(r io.Reader) (link.Reply, time.Duration) {
	o, err := s.store(r)
	if err != nil {
		return link.Reply{Error: err.Error()}, 0
	}
	defer func() { _ = os.Remove(s.File + ".new") }()
	if running := s.Running(); len(running) > 0 && !o.Force {
		return link.Reply{Error: "commands or terminals run", Running: running}, 0
	}
	err = check(s.File+".new", o.Version)
	if err == nil {
		err = s.swap(o.Version)
	}
	if err != nil {
		return link.Reply{Error: err.Error()}, 0
	}
	return link.Reply{}, o.Patience
}

// store writes what the host sends to FILE.new.
func (s *Service) store(r io.Reader) (link.UpgradeOrder, error) {
	var o link.UpgradeOrder
	frames := link.NewFrameReader(r)
	t, payload, err := frames.Next()
	if err == nil && t != link.FrameUpgrade {
		err = link.ErrFrame
	}
	if err == nil {
		err = o.UnmarshalBinary(payload)
	}
	if err != nil {
		return o, fmt.Errorf("read order: %w", err)
	}
	f, err := os.OpenFile(s.File+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return o, fmt.Errorf("write new agent: %w", err)
	}
	sum := sha256.New()
	err = copyFrames(f, sum, frames, o.Size)
	if err == nil && !bytes.Equal(sum.Sum(nil), o.SHA256) {
		err = errors.New("its checksum is wrong")
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return o, errors.Join(fmt.Errorf("write new agent: %w", err), os.Remove(s.File+".new"))
	}
	return o, nil
}

// copyFrames writes exactly size bytes of input to f.
func copyFrames(f io.Writer, sum hash.Hash, frames *link.FrameReader, size int64) error {
	for {
		t, payload, err := frames.Next()
		if err != nil {
			return fmt.Errorf("read it: %w", err)
		}
		if t == link.FrameStdinEnd {
			break
		}
		if t != link.FrameStdin {
			continue
		}
		if size -= int64(len(payload)); size < 0 {
			break
		}
		sum.Write(payload)
		if _, err := f.Write(payload); err != nil {
			return err
		}
	}
	if size != 0 {
		return errors.New("it is not as long as announced")
	}
	return nil
}

func ask(ctx context.Context, path string) ([]byte, error) {
	return exec.CommandContext(ctx, path, "--version").Output()
}

// check runs a new agent as far as its version.
func check(path, version string) error {
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout) //nolint:forbidigo // the check bounds itself
	defer cancel()
	out, err := ask(ctx, path)
	// A child that another command was forked into holds the file open for writing
	// until it has become its own program.
	for errors.Is(err, syscall.ETXTBSY) && ctx.Err() == nil {
		time.Sleep(busyPause)
		out, err = ask(ctx, path)
	}
	if err != nil {
		return fmt.Errorf("try new agent: %w", err)
	}
	if got := strings.TrimSpace(string(out)); got != version {
		return fmt.Errorf("try new agent: it says that it is version %.80q instead of %.80q", got, version)
	}
	return nil
}

// swap makes FILE.new the agent and keeps the present one.
func (s *Service) swap(version string) error {
	if err := os.MkdirAll(dirOf(s.Mark), 0o755); err != nil {
		return fmt.Errorf("mark the trial: %w", err)
	}
	if err := sysfile.Replace(s.Mark, version+"\n", 0o600); err != nil {
		return fmt.Errorf("mark the trial: %w", err)
	}
	_ = os.Remove(s.old())
	err := os.Link(s.File, s.old())
	if err == nil {
		err = os.Rename(s.File+".new", s.File)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("put new agent in place: %w", err), s.discard())
	}
	return nil
}

// Revert puts the old agent's file back, if there is one.
func (s *Service) Revert() error {
	err := os.Rename(s.old(), s.File)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, s.discard())
}

// discard ends the trial.
func (s *Service) discard() error {
	var errs []error
	for _, path := range []string{s.Mark, s.old()} {
		if err := syscall.Unlink(path); err != nil && !errors.Is(err, syscall.ENOENT) {
			errs = append(errs, &os.PathError{Op: "remove", Path: path, Err: err})
		}
	}
	return errors.Join(errs...)
}

// Upgraded serves one PathUpgraded request.
func (s *Service) Upgraded(st *http2.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var r link.Reply
	if err := s.discard(); err != nil {
		r.Error = err.Error()
	}
	body, _ := r.MarshalBinary()
	_, _ = st.Write(link.AppendFrame(nil, link.FrameReply, body))
}

func dirOf(path string) string { return path[:strings.LastIndexByte(path, '/')] }
