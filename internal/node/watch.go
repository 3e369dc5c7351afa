package node

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pandovm/pando/internal/jail"
	"github.com/pandovm/pando/internal/layer"
	"github.com/pandovm/pando/internal/qemu/qmp"
	"github.com/pandovm/pando/internal/vm"
)

// handOut makes a VM whose guest has confirmed visible, and watches it from
// then on. The caller holds m.mu.
func (n *Node) handOut(m *machine, l *live) error {
	m.rec.Phase, m.rec.Fallback, m.rec.State, m.lost = phaseRunning, "", layer.Layer{}, false
	if err := m.save(false); err != nil {
		return err
	}
	m.live.Store(l)
	events, cancel := l.monitor.Events(64)
	n.watchers.Go(func() {
		defer cancel()
		n.watch(m, l, events)
	})
	n.flattenLater(m)
	return nil
}

// watch follows a running VM until its process ends or the node closes.
func (n *Node) watch(m *machine, l *live, events <-chan qmp.Event) {
	end := ending{cause: vm.CauseCrashed}
	for {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			end.note(e)
			if e.Name == "RESET" {
				l.resets.Add(1)
				n.watchers.Go(func() { n.rebooted(m, l) })
			}
		case <-l.gone:
			end.drain(events)
			n.ended(m, l, end.cause, end.describe(l.exit))
			return
		case <-n.life.Done():
			return
		}
	}
}

// ending collects what QEMU says about its own end. What it does not explain
// is a crash.
type ending struct {
	cause  vm.Cause
	reason string
}

func (e *ending) note(ev qmp.Event) {
	switch ev.Name {
	case "SHUTDOWN":
		var d struct {
			Guest  bool   `json:"guest"`
			Reason string `json:"reason"`
		}
		if json.Unmarshal(ev.Data, &d) == nil && e.reason == "" {
			e.reason = "qemu shut down: " + d.Reason
			switch {
			case d.Reason == "guest-panic":
				e.panicked()
			case d.Guest:
				e.cause, e.reason = vm.CausePoweredOff, "the guest powered off"
			}
		}
	case "GUEST_PANICKED":
		e.panicked()
	}
}

func (e *ending) panicked() {
	e.cause, e.reason = vm.CausePanicked, "the guest's kernel panicked"
}

// drain takes the events that arrived before the process was seen to end.
func (e *ending) drain(events <-chan qmp.Event) {
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				return
			}
			e.note(ev)
		default:
			return
		}
	}
}

// describe says why the process ended: what QEMU said, else how it died.
func (e *ending) describe(exit jail.Exit) string {
	if e.reason == "" {
		return "qemu " + exit.String()
	}
	return e.reason
}

// ended cleans up after a process and reports its end unless it was ordered.
func (n *Node) ended(m *machine, l *live, cause vm.Cause, reason string) {
	m.live.CompareAndSwap(l, nil)
	_ = l.hangUp() // the other side is gone; nothing is left to say
	if l.ordered.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	generation := m.rec.Generation
	m.rec.Phase = phaseStopped
	if err := m.save(true); err != nil {
		n.log.Error("record the end of a vm", "vm_id", m.id, "error", err)
	}
	n.watchers.Go(func() {
		n.report(vm.Sighting{VMID: m.id, Generation: generation, Presence: vm.PresenceStopped, Cause: cause, Reason: reason})
	})
}

// rebooted opens a new epoch with the agent of a guest that restarted itself.
func (n *Node) rebooted(m *machine, l *live) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live.Load() != l || l.greeted == l.resets.Load() {
		return
	}
	// The agent that knew the token is gone.
	m.rec.Token = nil
	ctx, cancel := context.WithTimeout(n.life, bootDeadline)
	defer cancel()
	if _, err := n.handshake(ctx, m, l, nil, bootDeadline); err != nil {
		n.log.Warn("guest does not answer after its reboot", "vm_id", m.id, "error", err)
		return
	}
	l.greeted = l.resets.Load()
	if err := m.save(false); err != nil {
		n.log.Error("record a reboot", "vm_id", m.id, "error", fmt.Errorf("save record: %w", err))
	}
}
