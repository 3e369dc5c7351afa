package qemu

import (
	"context"
	"errors"
	"sync"

	"github.com/pandovm/pando/internal/qemu/qmp"
)

// Status is QEMU's run state, for example "running", "paused".
type Status string

// The run states that callers tell apart.
const (
	StatusRunning       Status = "running"
	StatusPaused        Status = "paused"
	StatusPrelaunch     Status = "prelaunch"
	StatusIncoming      Status = "inmigrate"
	StatusGuestPanicked Status = "guest-panicked"
	StatusShutdown      Status = "shutdown"
	StatusIOError       Status = "io-error"
)

// Monitor gives orders to one running QEMU. Methods are safe for concurrent
// use; each is one command unless it says otherwise.
type Monitor struct {
	client *qmp.Client

	mu   sync.Mutex
	sets []int64 // descriptors of past states that QEMU still holds
}

// Connect dials the monitor at sock, waiting for QEMU to come up until ctx ends.
func Connect(ctx context.Context, sock string) (*Monitor, error) {
	client, err := qmp.Dial(ctx, sock)
	if err != nil {
		return nil, err
	}
	return &Monitor{client: client}, nil
}

// Client is the connection below, for orders that have no method here.
func (m *Monitor) Client() *qmp.Client { return m.client }

// Events delivers what happens in QEMU; see qmp.Client.Subscribe.
func (m *Monitor) Events(buf int) (<-chan qmp.Event, func()) { return m.client.Subscribe(buf) }

// Done is closed when QEMU's side of the monitor has gone or Close was called.
func (m *Monitor) Done() <-chan struct{} { return m.client.Done() }

// Err says why Done was closed.
func (m *Monitor) Err() error { return m.client.Err() }

// Close leaves the monitor; QEMU goes on.
func (m *Monitor) Close() error { return m.client.Close() }

// Stop halts the virtual CPUs, waits for disk requests in flight and flushes
// the disk. A stopped machine stays stopped.
func (m *Monitor) Stop(ctx context.Context) error { return m.client.Execute(ctx, "stop", nil, nil) }

// Cont lets the virtual CPUs run.
func (m *Monitor) Cont(ctx context.Context) error { return m.client.Execute(ctx, "cont", nil, nil) }

// SystemPowerdown presses the power button; the guest may ignore it.
func (m *Monitor) SystemPowerdown(ctx context.Context) error {
	return m.client.Execute(ctx, "system_powerdown", nil, nil)
}

// Quit ends the process at once, without asking the guest. The disk is flushed.
// QEMU may go before it answers, so the end of the connection is success.
func (m *Monitor) Quit(ctx context.Context) error {
	err := m.client.Execute(ctx, "quit", nil, nil)
	if errors.Is(err, qmp.ErrGone) {
		return nil
	}
	return err
}

// Status returns the run state.
func (m *Monitor) Status(ctx context.Context) (Status, error) {
	var answer struct {
		Status Status `json:"status"`
	}
	err := m.client.Execute(ctx, "query-status", nil, &answer)
	return answer.Status, err
}
