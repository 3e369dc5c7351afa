package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/qemu/qmp"
)

// maxState bounds what QEMU may write as its state; a usual one has 10 KB.
const maxState = 64 << 20

// ErrStateRejected says that QEMU could not load a state: it is damaged, or of
// another machine. The detail is on QEMU's stderr.
var ErrStateRejected = errors.New("qemu rejected the saved state")

// Saving is a prepared SaveState: QEMU already holds the descriptor to write to.
//
// That is a file in memory, not the caller's: QEMU keeps its descriptor until
// the next saving, and must not be able to change a file that was published.
type Saving struct {
	monitor *Monitor
	set     int64    // QEMU's number for the descriptor
	written *os.File // what QEMU writes
	to      *os.File
}

// PrepareSave does ahead of the pause, while the machine runs, what a saving into
// f needs. Call Run or Cancel exactly once, and only one saving at a time.
func (m *Monitor) PrepareSave(ctx context.Context, f *os.File) (*Saving, error) {
	if err := m.dropSets(ctx); err != nil {
		return nil, fmt.Errorf("prepare state: %w", err)
	}
	fd, err := unix.MemfdCreate("pando-state", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("prepare state: %w", err)
	}
	s := &Saving{monitor: m, written: os.NewFile(uintptr(fd), "pando-state"), to: f}
	if s.set, err = m.addFD(ctx, s.written, os.O_WRONLY); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare state: %w", err), s.written.Close())
	}
	return s, nil
}

// Run writes the device state to f at its offset and returns when all of it is
// there (not synced). The machine must be stopped and stays so. RAM and disk
// are not in the state, and the disk goes on being QEMU's.
func (s *Saving) Run(ctx context.Context) error {
	// This command is the core of a migration's last phase and nothing else: it
	// starts no thread, tracks no dirty pages and does not close the disk's
	// chain, each file of which would cost a millisecond to open again.
	err := s.monitor.client.Execute(ctx, "xen-save-devices-state", struct {
		Filename string `json:"filename"`
		Live     bool   `json:"live"`
	}{setName(s.set), false}, nil)
	if err == nil {
		err = s.copy()
	}
	if err := errors.Join(err, s.end()); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

func (s *Saving) copy() error {
	if _, err := s.written.Seek(0, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(s.to, io.LimitReader(s.written, maxState+1))
	if err == nil && (n == 0 || n > maxState) {
		err = fmt.Errorf("qemu wrote a state of %d bytes", n)
	}
	return err
}

// Cancel gives up a saving that was not run.
func (s *Saving) Cancel(ctx context.Context) error {
	return errors.Join(s.end(), s.monitor.dropSets(ctx))
}

// end gives the memory back. QEMU's own descriptor is taken from it later: a
// command more would be part of the pause.
func (s *Saving) end() error {
	s.monitor.oweSet(s.set)
	return errors.Join(s.written.Truncate(0), s.written.Close())
}

func (m *Monitor) oweSet(set int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sets = append(m.sets, set)
}

// dropSets makes QEMU close the descriptors of earlier savings.
func (m *Monitor) dropSets(ctx context.Context) error {
	m.mu.Lock()
	sets := m.sets
	m.sets = nil
	m.mu.Unlock()
	var errs []error
	for _, set := range sets {
		errs = append(errs, m.client.Execute(ctx, "remove-fd", struct {
			Set int64 `json:"fdset-id"`
		}{set}, nil))
	}
	return errors.Join(errs...)
}

// SaveState is PrepareSave and Run in one.
func (m *Monitor) SaveState(ctx context.Context, f *os.File) error {
	saving, err := m.PrepareSave(ctx, f)
	if err != nil {
		return err
	}
	return saving.Run(ctx)
}

// LoadState reads a device state from f, from its start, into a machine that was
// started with Incoming. RAM must be in place before. The machine is stopped
// afterwards. A state that does not fit is ErrStateRejected, and QEMU ends.
func (m *Monitor) LoadState(ctx context.Context, f *os.File) error {
	events, cancel := m.client.Subscribe(eventRoom)
	defer cancel()
	if err := m.load(ctx, f, events); err != nil {
		if errors.Is(err, qmp.ErrGone) {
			err = fmt.Errorf("%w: %w", ErrStateRejected, err)
		}
		return fmt.Errorf("load state: %w", err)
	}
	return nil
}

func (m *Monitor) load(ctx context.Context, f *os.File, events <-chan qmp.Event) error {
	type capability struct {
		Name  string `json:"capability"`
		State bool   `json:"state"`
	}
	err := m.client.Execute(ctx, "migrate-set-capabilities", struct {
		Capabilities []capability `json:"capabilities"`
	}{[]capability{{"events", true}}}, nil)
	if err != nil {
		return err
	}
	const name = "pando-state"
	passed, err := reopen(f, os.O_RDONLY)
	if err != nil {
		return err
	}
	err = m.client.Execute(ctx, "getfd", struct {
		Name string `json:"fdname"`
	}{name}, nil, passed)
	if err := errors.Join(err, passed.Close()); err != nil {
		return err
	}
	err = m.client.Execute(ctx, "migrate-incoming", struct {
		URI string `json:"uri"`
	}{"fd:" + name}, nil)
	if err != nil {
		return err
	}
	return m.migrated(ctx, events)
}

// migrated waits until QEMU says that the loading has ended.
func (m *Monitor) migrated(ctx context.Context, events <-chan qmp.Event) error {
	for {
		select {
		case event, ok := <-events:
			if !ok {
				return m.lost()
			}
			if ended, err := migrationResult(event); ended || err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func migrationResult(event qmp.Event) (ended bool, err error) {
	if event.Name != "MIGRATION" {
		return false, nil
	}
	var data struct {
		Status string `json:"status"`
	}
	if err := json.Unmarshal(event.Data, &data); err != nil {
		return false, fmt.Errorf("decode migration event: %w", err)
	}
	switch data.Status {
	case "completed":
		return true, nil
	case "failed", "cancelled":
		return true, ErrStateRejected
	default:
		return false, nil
	}
}

// addFD gives QEMU an open file to open by name. It opens it in no other mode
// than the one it has.
func (m *Monitor) addFD(ctx context.Context, f *os.File, mode int) (set int64, err error) {
	passed, err := reopen(f, mode)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Set int64 `json:"fdset-id"`
	}
	err = m.client.Execute(ctx, "add-fd", nil, &answer, passed)
	return answer.Set, errors.Join(err, passed.Close())
}

// reopen gives an open file another mode and an offset of its own, at the start.
func reopen(f *os.File, mode int) (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), mode, 0)
}

// setName is how QEMU opens a file of a set.
func setName(set int64) string { return fmt.Sprintf("/dev/fdset/%d", set) }

// lost says why a subscription ended.
func (m *Monitor) lost() error {
	if err := m.client.Err(); err != nil {
		return err
	}
	return errors.New("more events than there was room for")
}
