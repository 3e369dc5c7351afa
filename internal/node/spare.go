package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/vm"
)

// A spare is a VM that was restored from a base image before anybody asked for
// it, has confirmed an epoch and run a command, and stands still. Who asks gets
// it after one more epoch, which sets its clock, entropy and identity like any
// other. What a restore costs most, code that the processor or its emulator
// meets for the first time, is behind it.
//
// To the record a spare is a VM that is starting and did not exist before, so
// a daemon that is killed leaves it to the next one to remove.
type spare struct {
	m *machine
	l *live
}

// spares is what a node keeps of them. The node's mu guards ready and allowed.
type spares struct {
	ready   map[string][]*spare
	allowed map[string]bool
	// making is held while spares are made: one after the other.
	making sync.Mutex
	ctx    context.Context //nolint:containedctx // ends the making before the node closes
	cancel context.CancelFunc
	wg     *sync.WaitGroup
}

func newSpares(life context.Context) spares {
	ctx, cancel := context.WithCancel(life)
	return spares{ready: map[string][]*spare{}, allowed: map[string]bool{}, ctx: ctx, cancel: cancel, wg: &sync.WaitGroup{}}
}

// refillPause is how long after a create its spare's successor is made: the
// first commands of the new VM come first.
const refillPause = 2 * time.Second

// rehearsal is what a spare runs, in the way that people's commands are run.
const rehearsal = "true"

// allowSpares lets a snapshot have spares.
func (n *Node) allowSpares(snapshotID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.spares.allowed[snapshotID] = true
}

// takeSpare gives a spare its new id, or returns nil if there is none.
func (n *Node) takeSpare(snapshotID, id string) *spare {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		ready := n.spares.ready[snapshotID]
		if len(ready) == 0 || n.machines[id] != nil {
			return nil
		}
		s := ready[0]
		n.spares.ready[snapshotID] = ready[1:]
		if closed(s.l.gone) {
			n.watchers.Go(func() { n.discard(s) })
			continue
		}
		n.layers.Hold(id, idsOf(s.m.rec.layers())...)
		old := s.m.id
		delete(n.machines, old)
		s.m.id, s.m.rec.ID, s.m.spare = id, id, false
		n.machines[id] = s.m
		if err := n.layers.Drop(old); err != nil {
			n.log.Error("release layers", "vm_id", old, "error", err)
		}
		return s
	}
}

// discard removes a spare.
func (n *Node) discard(s *spare) {
	if err := errors.Join(n.kill(s.l), n.remove(s.m)); err != nil {
		n.log.Error("remove spare vm", "vm_id", s.m.id, "error", err)
	}
}

// employ makes a spare the VM that was asked for. On error nothing of it is left.
func (n *Node) employ(ctx context.Context, s *spare, b birth) (vm.Running, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	r, err := n.tryEmploy(ctx, s, b)
	if err != nil {
		return vm.Running{}, errors.Join(err, n.kill(s.l), n.remove(s.m))
	}
	return r, nil
}

func (n *Node) tryEmploy(ctx context.Context, s *spare, b birth) (vm.Running, error) {
	identity, err := b.identityFor()
	if err != nil {
		return vm.Running{}, err
	}
	s.m.rec.Generation = b.generation
	if err := s.l.monitor.Cont(ctx); err != nil {
		return vm.Running{}, fmt.Errorf("let the vm run: %w", err)
	}
	r, err := n.handshake(ctx, s.m, s.l, identity, confirmDeadline)
	if err != nil {
		return vm.Running{}, err
	}
	return r, n.handOut(s.m, s.l)
}

// refill makes the spares that a snapshot lacks, in the background.
func (n *Node) refill(snapshotID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cfg.Spares == 0 || !n.spares.allowed[snapshotID] || n.spares.ctx.Err() != nil {
		return
	}
	n.spares.wg.Go(func() {
		select {
		case <-time.After(refillPause):
			n.makeSpares(snapshotID)
		case <-n.spares.ctx.Done():
		}
	})
}

func (n *Node) makeSpares(snapshotID string) {
	n.spares.making.Lock()
	defer n.spares.making.Unlock()
	for n.lacksSpares(snapshotID) {
		s, err := n.makeSpare(n.spares.ctx, snapshotID)
		if err != nil {
			if n.spares.ctx.Err() == nil {
				n.log.Warn("make spare vm", "snapshot_id", snapshotID, "error", err)
			}
			return
		}
		n.mu.Lock()
		n.spares.ready[snapshotID] = append(n.spares.ready[snapshotID], s)
		n.mu.Unlock()
	}
}

func (n *Node) lacksSpares(snapshotID string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.spares.ctx.Err() == nil && n.snapshots[snapshotID] != nil && len(n.spares.ready[snapshotID]) < n.cfg.Spares
}

// makeSpare restores a VM, rehearses what its first minute will be like, and
// makes it stand still.
func (n *Node) makeSpare(ctx context.Context, snapshotID string) (*spare, error) {
	b := birth{id: "spare-" + uuid.NewString(), hostname: "spare"}
	m, err := n.add(b.id)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	m.spare = true
	n.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := n.restoreSpare(ctx, m, b, snapshotID)
	if err != nil {
		return nil, errors.Join(err, n.remove(m))
	}
	if err := n.rehearse(ctx, m, l, b); err != nil {
		return nil, errors.Join(err, n.kill(l), n.remove(m))
	}
	return &spare{m: m, l: l}, nil
}

func (n *Node) restoreSpare(ctx context.Context, m *machine, b birth, snapshotID string) (*live, error) {
	man, err := n.holdSnapshot(snapshotID, b.id)
	if err == nil {
		err = errors.Join(n.fits(man), n.intact(ctx, man))
	}
	if err != nil {
		return nil, err
	}
	identity, err := n.conceive(ctx, m, b, man)
	if err != nil {
		return nil, err
	}
	_, l, err := n.rouse(ctx, m, identity, kept(man))
	return l, err
}

// rehearse runs a command and opens an epoch once more, as it will be done
// when the spare is taken, and stops the VM.
func (n *Node) rehearse(ctx context.Context, m *machine, l *live, b birth) error {
	_, err := l.link.Load().Exec(ctx, guest.ExecOrder{Command: rehearsal, Timeout: time.Minute, MaxOutput: 4 << 10})
	if err != nil {
		return fmt.Errorf("rehearse a command: %w", err)
	}
	identity, err := b.identityFor()
	if err != nil {
		return err
	}
	if _, err := n.handshake(ctx, m, l, identity, confirmDeadline); err != nil {
		return fmt.Errorf("rehearse an epoch: %w", err)
	}
	if err := l.monitor.Stop(ctx); err != nil {
		return fmt.Errorf("stop spare vm: %w", err)
	}
	return m.save(false)
}

// closeSpares ends the making of spares and removes those that are ready.
func (n *Node) closeSpares() error {
	n.spares.cancel()
	n.spares.wg.Wait()
	n.mu.Lock()
	var all []*spare
	for _, ready := range n.spares.ready {
		all = append(all, ready...)
	}
	clear(n.spares.ready)
	n.mu.Unlock()
	var errs []error
	for _, s := range all {
		errs = append(errs, n.kill(s.l), n.remove(s.m))
	}
	return errors.Join(errs...)
}
