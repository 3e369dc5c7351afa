package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
)

const (
	pageSize = 4096
	// bookPages is the size of each of the two files that are compared.
	bookPages = 1024
	// writesPerStep is how many pages of each file one VM rewrites per step;
	// their bytes go over stdin, which takes a mebibyte.
	writesPerStep = 48
)

// book is what a VM's two files must hold: one in memory, one on the disk.
type book struct{ memory, disk []byte }

func (b book) clone() book { return book{bytes.Clone(b.memory), bytes.Clone(b.disk)} }

// scribble rewrites random pages of both files, in the VM and in the model.
func (b book) scribble(l *testlab.Lab, vm string, random *rand.Rand) {
	for path, content := range b.files() {
		var script strings.Builder
		var input bytes.Buffer
		for range writesPerStep {
			page := random.IntN(bookPages)
			data := content[page*pageSize:][:pageSize]
			for i := range data {
				data[i] = byte(random.Uint32())
			}
			input.Write(data)
			fmt.Fprintf(&script, "dd of=%s bs=%d seek=%d count=1 conv=notrunc iflag=fullblock 2>/dev/null\n", path, pageSize, page)
		}
		l.RunInput(vm, script.String(), input.Bytes())
	}
}

func (b book) files() map[string][]byte {
	return map[string][]byte{"/dev/shm/book": b.memory, "/book": b.disk}
}

// verify compares every byte of both files, the disk's read from the disk.
func (b book) verify(t *testing.T, l *testlab.Lab, vm string) {
	t.Helper()
	for path, content := range b.files() {
		sum := sha256.Sum256(content)
		got, _, _ := strings.Cut(l.Run(vm, "sync; echo 3 > /proc/sys/vm/drop_caches; sha256sum "+path), " ")
		if got != hex.EncodeToString(sum[:]) {
			t.Errorf("%s of %s differs from what was written to it", path, vm)
		}
	}
}

// Source and children write at random through several generations; at the end
// each holds exactly what it wrote itself on top of what it inherited.
func TestForkIsolation(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	random := rand.New(rand.NewPCG(1, 2))
	first := l.Create(testlab.Busybox)
	books := map[string]book{first.ID: {make([]byte, bookPages*pageSize), make([]byte, bookPages*pageSize)}}
	l.Run(first.ID, fmt.Sprintf("dd if=/dev/zero of=/dev/shm/book bs=%d count=%d 2>/dev/null; cp /dev/shm/book /book", pageSize, bookPages))
	generation := []string{first.ID}
	for range 4 {
		var next []string
		for _, id := range generation {
			books[id].scribble(l, id, random)
		}
		parent := generation[random.IntN(len(generation))]
		for _, c := range l.Fork(parent, 2) {
			books[c.ID] = books[parent].clone()
			next = append(next, c.ID)
		}
		for _, id := range append(next, parent) {
			books[id].scribble(l, id, random)
		}
		generation = next
	}
	if len(books) != 9 {
		t.Fatalf("%d vms, want 9", len(books))
	}
	for id, b := range books {
		b.verify(t, l, id)
	}
}

// The first process of each of 100 forks reads random bytes; none are equal.
func TestForksAreRandom(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	source := l.Create(testlab.Busybox)
	seen := map[string]string{}
	for range 4 {
		for _, c := range l.Fork(source.ID, 25) {
			got := l.Run(c.ID, "head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n'")
			if other, dup := seen[got]; dup || len(got) != 64 {
				t.Errorf("%s and %s read the same %q", c.ID, other, got)
			}
			seen[got] = c.ID
			if err := l.Client.VMs.Delete(t.Context(), c.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(seen) != 100 {
		t.Errorf("%d different reads, want 100", len(seen))
	}
}

// One call makes a hundred children of a running counter; all go on from it.
//
//nolint:paralleltest // a hundred guests that start want the host for themselves
func TestForkHundred(t *testing.T) {
	l := testlab.New(t)
	source := l.Create(testlab.Busybox)
	l.Run(source.ID, "echo same > /dev/shm/mark")
	children := l.Fork(source.ID, 100)
	names := map[string]bool{}
	for _, c := range children {
		out := l.Run(c.ID, "cat /dev/shm/mark; hostname")
		mark, name, _ := strings.Cut(out, "\n")
		if mark != "same" {
			t.Errorf("%s has the mark %q", c.ID, mark)
		}
		names[name] = true
	}
	if len(names) != 100 {
		t.Errorf("100 children have %d hostnames", len(names))
	}
}

// A process with a file open, in the middle of writing it, goes on in source
// and child, each in its own file.
func TestForkInMidWrite(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	source := l.Create(testlab.Busybox)
	l.Run(source.ID, `
		(i=0; while true; do i=$((i+1)); echo $i; echo $i > /dev/shm/count; done) > /numbers 2>/dev/null &
		echo $! > /dev/shm/writer`)
	child := l.Fork(source.ID, 1)[0]
	for _, id := range []string{source.ID, child.ID} {
		l.Run(id, "a=$(cat /dev/shm/count); while [ $(cat /dev/shm/count) -le $a ]; do :; done; kill $(cat /dev/shm/writer)")
		// Whole, in order, without a gap or a repetition: nothing of the file was lost.
		l.Run(id, `sync; echo 3 > /proc/sys/vm/drop_caches
			awk '$1 != NR { print "line " NR " is " $1; bad = 1; exit 1 }' /numbers`)
	}
	a, b := l.Run(source.ID, "wc -l < /numbers"), l.Run(child.ID, "wc -l < /numbers")
	l.Run(source.ID, "echo source >> /numbers")
	if got := l.Run(child.ID, "tail -n 1 /numbers"); strings.Contains(got, "source") {
		t.Errorf("the child sees what the source wrote (%s and %s lines)", a, b)
	}
}

// Deleting a source, a child or a snapshot never harms a relative.
func TestDeletingARelative(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	ctx := t.Context()
	remove := func(id string) {
		t.Helper()
		if err := l.Client.VMs.Delete(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	source := l.Create(testlab.Busybox)
	l.Run(source.ID, "echo inherited > /disk; echo inherited > /dev/shm/memory")
	children := l.Fork(source.ID, 2)
	snap, err := l.Client.VMs.Snapshot(ctx, children[0].ID, api.CreateSnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	made := l.CreateWith(api.CreateVMRequest{SnapshotID: &snap.SnapshotID})
	remove(source.ID)
	remove(children[0].ID)
	if err := l.Client.Snapshots.Delete(ctx, snap.SnapshotID); err != nil {
		t.Fatal(err)
	}
	grandchild := l.Fork(made.ID, 1)[0]
	remove(made.ID)
	for _, id := range []string{children[1].ID, grandchild.ID} {
		if got := l.Run(id, "echo 3 > /proc/sys/vm/drop_caches; cat /disk /dev/shm/memory"); got != "inherited\ninherited\n" {
			t.Errorf("%s reads %q", id, got)
		}
		if _, err := l.Client.VMs.Pause(ctx, id); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Client.VMs.Start(ctx, id); err != nil {
			t.Fatal(err)
		}
		if got := l.Run(id, "cat /disk /dev/shm/memory"); got != "inherited\ninherited\n" {
			t.Errorf("after a pause %s reads %q", id, got)
		}
	}
}

func TestAncestryIsShown(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	source := l.Create(testlab.Busybox)
	child := l.Fork(source.ID, 1)[0]
	grandchild := l.Fork(child.ID, 1)[0]
	if grandchild.ParentVMID == nil || *grandchild.ParentVMID != child.ID || len(grandchild.Ancestry) != 2 || grandchild.Ancestry[1] != source.ID {
		t.Errorf("the grandchild is %+v", grandchild)
	}
	if grandchild.ForkedAt == nil || grandchild.Image == nil || *grandchild.Image != testlab.Busybox {
		t.Errorf("the grandchild is %+v", grandchild)
	}
}
