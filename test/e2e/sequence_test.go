package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
)

// A random sequence of operations, some of them at the same time on the same
// VM, never ends in a VM that is wrong about its files or cannot be deleted.
func TestRandomOperations(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	ctx := t.Context()
	random := rand.New(rand.NewPCG(3, 4))
	want := map[string]string{}
	var ids []string
	adopt := func(v api.VM, text string) { ids = append(ids, v.ID); want[v.ID] = text }
	adopt(l.Create(testlab.Busybox), "")
	for step := range 60 {
		id := ids[random.IntN(len(ids))]
		v, err := l.Client.VMs.Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		switch random.IntN(7) {
		case 0, 1:
			if v.State == api.StateRunning {
				want[id] += fmt.Sprintf("%d\n", step)
				l.Run(id, fmt.Sprintf("echo %d >> /log; sync", step))
			}
		case 2:
			_, _ = l.Client.VMs.Pause(ctx, id)
		case 3:
			_, _ = l.Client.VMs.Start(ctx, id)
		case 4:
			if v.State == api.StateRunning && len(ids) < 8 {
				adopt(l.Fork(id, 1)[0], want[id])
			}
		case 5:
			done := make(chan struct{})
			go func() { defer close(done); _, _ = l.Client.VMs.Start(ctx, id) }()
			_, _ = l.Client.VMs.Pause(ctx, id)
			<-done
		case 6:
			if random.IntN(3) == 0 {
				_, _ = l.Client.VMs.Stop(ctx, id)
			}
		}
	}
	for _, id := range ids {
		if _, err := l.Client.VMs.Start(ctx, id); err != nil {
			t.Fatalf("start %s: %v", id, err)
		}
		if got := l.Run(id, "cat /log 2>/dev/null || true"); got != want[id] {
			t.Errorf("%s holds %q, want %q", id, strings.Fields(got), strings.Fields(want[id]))
		}
		if err := l.Client.VMs.Delete(ctx, id); err != nil {
			t.Errorf("delete %s: %v", id, err)
		}
	}
}

// Many captures of one VM and of its descendants: the disk chain stays short
// and the content right.
func TestChainStaysShort(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	ctx := t.Context()
	v := l.Create(testlab.Busybox)
	for i := range 30 {
		l.Run(v.ID, fmt.Sprintf("echo %d >> /log; dd if=/dev/urandom of=/block-%d bs=4096 count=16 2>/dev/null; sync", i, i))
		snap, err := l.Client.VMs.Snapshot(ctx, v.ID, api.CreateSnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 {
			v = l.CreateWith(api.CreateVMRequest{SnapshotID: &snap.SnapshotID})
		}
		if err := l.Client.Snapshots.Delete(ctx, snap.SnapshotID); err != nil {
			t.Fatal(err)
		}
	}
	sums := l.Run(v.ID, "sha256sum /block-*")
	child := l.Fork(v.ID, 1)[0]
	if got := l.Run(child.ID, "echo 3 > /proc/sys/vm/drop_caches; sha256sum /block-*"); got != sums {
		t.Error("the files of the child differ from the source's")
	}
	if got := strings.Count(l.Run(child.ID, "cat /log"), "\n"); got != 30 {
		t.Errorf("the log has %d lines, want 30", got)
	}
	await(t, "the chain to be shortened", func() bool { return l.ChainLength(v.ID) <= 9 })
}
