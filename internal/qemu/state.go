package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/pandovm/pando/internal/qemu/qmp"
)

const (
	// stateName is the descriptor's name inside QEMU.
	stateName = "pando-state"
	// eventRoom is enough for the events of one saving or loading, with room
	// for others that happen at the same time.
	eventRoom = 64
)

// ErrStateRejected says that QEMU could not load a state: it is damaged, or of
// another machine. QEMU ends itself then, with the detail on its stderr.
var ErrStateRejected = errors.New("qemu rejected the saved state")

// Saving is a prepared SaveState: QEMU already holds the descriptor.
type Saving struct {
	monitor *Monitor
	events  <-chan qmp.Event
	cancel  func()
}

// PrepareSave hands f to QEMU ahead of the pause. The state goes to f's current
// offset. Call Run or Cancel exactly once.
func (m *Monitor) PrepareSave(ctx context.Context, f *os.File) (*Saving, error) {
	if err := m.client.Execute(ctx, "getfd", fdName{stateName}, nil, f); err != nil {
		return nil, fmt.Errorf("prepare state: %w", err)
	}
	events, cancel := m.client.Subscribe(eventRoom)
	return &Saving{monitor: m, events: events, cancel: cancel}, nil
}

// Run writes the device state and returns when all of it is written (not
// synced). The machine must be stopped, and is in StatusSaved afterwards, from
// where Cont goes on. Disk nodes are closed for writing in between: switch
// overlays before.
func (s *Saving) Run(ctx context.Context) error {
	defer s.cancel()
	if err := s.monitor.client.Execute(ctx, "migrate", stateURI(), nil); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	if err := s.monitor.migrated(ctx, s.events); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// Cancel takes the descriptor back from QEMU.
func (s *Saving) Cancel(ctx context.Context) error {
	s.cancel()
	return s.monitor.client.Execute(ctx, "closefd", fdName{stateName}, nil)
}

// SaveState is PrepareSave and Run in one.
func (m *Monitor) SaveState(ctx context.Context, f *os.File) error {
	saving, err := m.PrepareSave(ctx, f)
	if err != nil {
		return err
	}
	return saving.Run(ctx)
}

// LoadState reads a device state from f's current offset into a machine that
// was started with Incoming. f must be an open file description of its own:
// concurrent loads of one state must not share an offset. The machine is
// stopped afterwards. A state that does not fit is ErrStateRejected, and ends
// the process.
func (m *Monitor) LoadState(ctx context.Context, f *os.File) error {
	if err := m.client.Execute(ctx, "getfd", fdName{stateName}, nil, f); err != nil {
		return fmt.Errorf("load state: %w", err)
	}
	events, cancel := m.client.Subscribe(eventRoom)
	defer cancel()
	err := m.client.Execute(ctx, "migrate-incoming", stateURI(), nil)
	if err == nil {
		err = m.migrated(ctx, events)
	}
	if errors.Is(err, qmp.ErrGone) {
		err = fmt.Errorf("%w: %w", ErrStateRejected, err)
	}
	if err != nil {
		return fmt.Errorf("load state: %w", err)
	}
	return nil
}

type fdName struct {
	Name string `json:"fdname"`
}

func stateURI() any {
	return struct {
		URI string `json:"uri"`
	}{"fd:" + stateName}
}

// migrated waits until QEMU says that the migration has ended.
func (m *Monitor) migrated(ctx context.Context, events <-chan qmp.Event) error {
	for {
		select {
		case event, ok := <-events:
			if !ok {
				return m.lost()
			}
			ended, err := m.migrationEnd(ctx, event)
			if ended || err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lost says why a subscription ended.
func (m *Monitor) lost() error {
	if err := m.client.Err(); err != nil {
		return err
	}
	return errors.New("more events than there was room for")
}

func (m *Monitor) migrationEnd(ctx context.Context, event qmp.Event) (bool, error) {
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
		return true, m.migrationError(ctx, data.Status)
	default:
		return false, nil
	}
}

func (m *Monitor) migrationError(ctx context.Context, status string) error {
	var answer struct {
		Detail string `json:"error-desc"`
	}
	if err := m.client.Execute(ctx, "query-migrate", nil, &answer); err != nil {
		return fmt.Errorf("migration %s: %w", status, err)
	}
	return fmt.Errorf("migration %s: %s", status, answer.Detail)
}
