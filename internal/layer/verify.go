package layer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// hashChunk is how much is hashed between two looks at the context.
const hashChunk = 1 << 20

// identity tells one state of one file from all others that have had its name.
type identity struct {
	size, mtime int64
	ino, dev    uint64
	sha256      string
}

// checks remembers what has been hashed, and makes concurrent callers wait for
// one reading of a file instead of each doing its own.
type checks struct {
	mu      sync.Mutex
	running map[ID]chan struct{}
	good    map[ID]identity
}

// Sync makes a layer durable: its content and its name are on disk and its
// checksum known when Sync returns. The file is read once.
func (s *Store) Sync(ctx context.Context, l Layer) (Layer, error) {
	f, err := os.Open(s.Path(l.ID))
	if err != nil {
		return Layer{}, fmt.Errorf("sync layer: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	before, err := identify(f)
	if err != nil {
		return Layer{}, fmt.Errorf("sync layer %s: %w", l.ID, err)
	}
	if before.size != l.Bytes {
		return Layer{}, fmt.Errorf("sync layer %s: %d bytes, expected %d", l.ID, before.size, l.Bytes)
	}
	// Writing starts now and goes on while the content is being hashed.
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	sum, err := digest(ctx, f)
	if err != nil {
		return Layer{}, fmt.Errorf("sync layer %s: %w", l.ID, err)
	}
	if l.SHA256 != "" && l.SHA256 != sum {
		return Layer{}, corrupt(l, "its content has changed")
	}
	if err := errors.Join(f.Sync(), syncDir(s.dir)); err != nil {
		return Layer{}, fmt.Errorf("sync layer %s: %w", l.ID, err)
	}
	before.sha256 = sum
	s.checks.remember(l.ID, before)
	l.SHA256 = sum
	return l, nil
}

// Verify checks that a layer is there, has its size and, if l has a checksum,
// its content. Anything else is fault CONFLICT with reason snapshot_corrupt. A
// file is read once per process; concurrent callers share the reading.
func (s *Store) Verify(ctx context.Context, l Layer) error {
	for {
		f, got, err := s.open(l)
		if err != nil {
			return err
		}
		wait, mine := s.checks.claim(l, got)
		if mine {
			err := s.verifyContent(ctx, f, l, got)
			_ = f.Close()
			s.checks.release(l.ID)
			return err
		}
		_ = f.Close()
		if wait == nil {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return fmt.Errorf("verify layer %s: %w", l.ID, context.Cause(ctx))
		}
	}
}

// open opens the file of l and compares what needs no reading.
func (s *Store) open(l Layer) (*os.File, identity, error) {
	f, err := os.Open(s.Path(l.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, identity{}, corrupt(l, "its file is missing")
	}
	if err != nil {
		return nil, identity{}, fmt.Errorf("verify layer: %w", err)
	}
	got, err := identify(f)
	if err == nil && got.size != l.Bytes {
		err = corrupt(l, fmt.Sprintf("its file has %d bytes instead of %d", got.size, l.Bytes))
	}
	if err != nil {
		_ = f.Close()
		return nil, identity{}, err
	}
	return f, got, nil
}

func (s *Store) verifyContent(ctx context.Context, f *os.File, l Layer, got identity) error {
	sum, err := digest(ctx, f)
	if err != nil {
		return fmt.Errorf("verify layer %s: %w", l.ID, err)
	}
	if sum != l.SHA256 {
		return corrupt(l, "its checksum is wrong")
	}
	got.sha256 = sum
	s.checks.remember(l.ID, got)
	return nil
}

// claim returns true if the caller has to read the file, a channel if somebody
// else is reading it, and neither if nothing is left to check.
func (c *checks) claim(l Layer, got identity) (<-chan struct{}, bool) {
	got.sha256 = l.SHA256
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.SHA256 == "" || c.good[l.ID] == got {
		return nil, false
	}
	if wait := c.running[l.ID]; wait != nil {
		return wait, false
	}
	c.running[l.ID] = make(chan struct{})
	return nil, true
}

func (c *checks) release(id ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.running[id])
	delete(c.running, id)
}

func (c *checks) remember(id ID, i identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.good[id] = i
}

func (c *checks) forget(id ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.good, id)
}

func identify(f *os.File) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return identity{}, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	return identity{size: st.Size, mtime: st.Mtim.Nano(), ino: st.Ino, dev: st.Dev}, nil
}

// digest returns the SHA-256 of the whole file in lower-case hexadecimal.
func digest(ctx context.Context, f *os.File) (string, error) {
	sum := sha256.New()
	buffer := make([]byte, hashChunk)
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return "", context.Cause(ctx)
		}
		n, err := f.ReadAt(buffer, at)
		sum.Write(buffer[:n])
		at += int64(n)
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
		if err != nil {
			return "", fmt.Errorf("read content: %w", err)
		}
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

func corrupt(l Layer, what string) error {
	f := fault.Conflict(api.ReasonSnapshotCorrupt, "the %s layer %s is damaged: %s", l.Kind, l.ID, what)
	return f.Hint("delete the snapshot and make it again; for a base image run: pando image build")
}
