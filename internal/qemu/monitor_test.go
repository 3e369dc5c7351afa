package qemu_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/qemu"
	"github.com/pandovm/pando/internal/qemu/qmp"
)

func (p *proc) hmp(t testing.TB, line string) string {
	t.Helper()
	var out string
	err := p.monitor.Client().Execute(t.Context(), "human-monitor-command", map[string]string{"command-line": line}, &out)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// io runs a qemu-io command on the guest's disk, as the guest would.
func (p *proc) io(t testing.TB, command string) {
	t.Helper()
	if out := p.hmp(t, `qemu-io -d /machine/peripheral/disk0/virtio-backend "`+command+`"`); strings.Contains(out, "rror") || strings.Contains(out, "ailed") {
		t.Fatalf("%s: %s", command, out)
	}
}

// imageHas fails unless the image, with what is below it, has the pattern at
// offset.
func imageHas(t *testing.T, path, pattern, offset string) {
	t.Helper()
	out := run(t, "qemu-io", "-r", "-U", "-f", "qcow2", "-c", "read -P "+pattern+" "+offset+" 64k", path)
	if strings.Contains(out, "verification failed") {
		t.Errorf("%s has no %s at %s", path, pattern, offset)
	}
}

func TestRunStates(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	p := l.start(t, l.machine(t, "a"))
	for _, step := range []struct {
		do   func(context.Context) error
		want qemu.Status
	}{
		{func(context.Context) error { return nil }, qemu.StatusPrelaunch},
		{p.monitor.Cont, qemu.StatusRunning},
		{p.monitor.Stop, qemu.StatusPaused},
		{p.monitor.Stop, qemu.StatusPaused},
		{p.monitor.Cont, qemu.StatusRunning},
		{p.monitor.SystemPowerdown, qemu.StatusRunning}, // nobody in there listens
	} {
		if err := step.do(t.Context()); err != nil {
			t.Fatal(err)
		}
		if status, err := p.monitor.Status(t.Context()); err != nil || status != step.want {
			t.Errorf("status = %s, %v, want %s", status, err, step.want)
		}
	}
	if err := p.monitor.Quit(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if p.err != nil {
		t.Errorf("qemu ended with %v", p.err)
	}
	<-p.monitor.Done()
	if err := p.monitor.Stop(t.Context()); !errors.Is(err, qmp.ErrGone) {
		t.Errorf("after the end: %v", err)
	}
	if err := p.monitor.Quit(t.Context()); err != nil {
		t.Errorf("quit of a qemu that has gone: %v", err)
	}
}

func TestKilledQEMUIsNoticed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	p := l.start(t, l.machine(t, "a"))
	events, cancel := p.monitor.Events(1)
	defer cancel()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.monitor.Done()
	if !errors.Is(p.monitor.Err(), qmp.ErrGone) {
		t.Errorf("err = %v", p.monitor.Err())
	}
	if event, ok := <-events; ok {
		t.Errorf("event %v from the dead", event)
	}
}

func TestMonitorServesTheNextClient(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(t, "a")
	p := l.start(t, m)
	if err := p.monitor.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := qemu.Connect(t.Context(), m.QMPSocket())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if status, err := again.Status(t.Context()); err != nil || status != qemu.StatusPrelaunch {
		t.Errorf("status = %s, %v", status, err)
	}
}

// counter is a guest of twelve bytes: it counts in memory, for ever.
const counter = "\x31\xc0" + // xor ax, ax
	"\x8e\xd8" + //             mov ds, ax
	"\x66\xff\x06\x00\x80" + // inc dword [0x8000]
	"\xeb\xf9" //               jmp to inc

// bootSector makes a disk that runs code in real mode.
func (l lab) bootSector(t testing.TB, name, code string) string {
	t.Helper()
	sector := make([]byte, 1<<20)
	copy(sector, code+"\xf4\xeb\xfd") // hlt; jmp to hlt
	sector[510], sector[511] = 0x55, 0xaa
	raw := filepath.Join(l.dir, name+".raw")
	if err := os.WriteFile(raw, sector, 0o600); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(l.dir, name)
	run(t, "qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", raw, disk)
	return disk
}

// counted reads the counter of the guest.
func (p *proc) counted(t testing.TB) string {
	t.Helper()
	return strings.TrimSpace(p.hmp(t, "xp /1wx 0x8000"))
}

// awaitCounting returns when the guest has begun to count.
func (p *proc) awaitCounting(t *testing.T) {
	t.Helper()
	for first := p.counted(t); p.counted(t) == first || !strings.Contains(p.hmp(t, "info registers"), "EIP=00007c"); {
		if t.Context().Err() != nil {
			t.Fatal("the guest does not count")
		}
	}
}

func TestStateMovesToAnotherProcess(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(t, "a")
	m.Disk, m.Paused = l.bootSector(t, "boot.qcow2", counter), false
	a := l.start(t, m)
	a.awaitCounting(t)
	if err := a.monitor.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	state := memfile(t)
	defer state.Close()
	if err := a.monitor.SaveState(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if status, err := a.monitor.Status(t.Context()); err != nil || status != qemu.StatusPaused {
		t.Errorf("status after saving = %s, %v", status, err)
	}
	registers, count := a.hmp(t, "info registers"), a.counted(t)

	n := l.machine(t, "b")
	n.Disk, n.Incoming = filepath.Join(l.dir, "b.qcow2"), true
	copyFile(t, m.Disk, n.Disk)
	copyFile(t, m.RAMFile(), n.RAMFile())
	b := l.start(t, n)
	if status, err := b.monitor.Status(t.Context()); err != nil || status != qemu.StatusIncoming {
		t.Errorf("status before loading = %s, %v", status, err)
	}
	if err := b.monitor.LoadState(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if status, err := b.monitor.Status(t.Context()); err != nil || status != qemu.StatusPaused {
		t.Errorf("status after loading = %s, %v", status, err)
	}
	if diff := cmp.Diff(registers, b.hmp(t, "info registers")); diff != "" {
		t.Error(diff)
	}
	if got := b.counted(t); got != count {
		t.Errorf("counter = %s, want %s", got, count)
	}
	for _, p := range []*proc{a, b} {
		if err := p.monitor.Cont(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.awaitCounting(t)
	}
}

// TestRebootAfterLoading: firmware is not in the state, and must be there.
func TestRebootAfterLoading(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(t, "a")
	m.Disk, m.Paused = l.bootSector(t, "boot.qcow2", counter), false
	a := l.start(t, m)
	a.awaitCounting(t)
	if err := a.monitor.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	state := memfile(t)
	defer state.Close()
	if err := a.monitor.SaveState(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	n := l.machine(t, "b")
	n.Disk, n.Incoming = filepath.Join(l.dir, "b.qcow2"), true
	copyFile(t, m.Disk, n.Disk)
	copyFile(t, m.RAMFile(), n.RAMFile())
	b := l.start(t, n)
	if err := errors.Join(b.monitor.LoadState(t.Context(), state), b.monitor.Cont(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := b.monitor.Client().Execute(t.Context(), "system_reset", nil, nil); err != nil {
		t.Fatal(err)
	}
	b.hmp(t, "info status")
	b.awaitCounting(t)
}

func TestSaveMayBeRepeatedAndCancelled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(t, "a")
	m.Disk = l.qcow2(t, "a.qcow2")
	p := l.start(t, m)
	if err := p.monitor.Cont(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancelled := memfile(t)
	defer cancelled.Close()
	saving, err := p.monitor.PrepareSave(t.Context(), cancelled)
	if err != nil {
		t.Fatal(err)
	}
	if err := saving.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		state := memfile(t)
		defer state.Close()
		if saving, err = p.monitor.PrepareSave(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.monitor.Stop(t.Context()), saving.Run(t.Context()), p.monitor.Cont(t.Context())); err != nil {
			t.Fatal(err)
		}
		if info, err := state.Stat(); err != nil || info.Size() < 1000 || info.Size() > 64<<10 {
			t.Errorf("state of %d bytes, %v", info.Size(), err)
		}
	}
	var sets []any
	if err := p.monitor.Client().Execute(t.Context(), "query-fdsets", nil, &sets); err != nil || len(sets) > 1 {
		t.Errorf("qemu holds %d descriptors, %v", len(sets), err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := p.monitor.SaveState(t.Context(), full); err == nil {
		t.Error("a state was saved to a full disk")
	}
	if err := p.monitor.Cont(t.Context()); err != nil {
		t.Errorf("after a failure: %v", err)
	}
}

func TestStateThatDoesNotFitIsRejected(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a := l.start(t, l.machine(t, "a")) // no disk
	state := memfile(t)
	defer state.Close()
	if err := a.monitor.SaveState(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	sound, err := io.ReadAll(io.NewSectionReader(state, 0, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		alter func(*qemu.Machine)
		state string
	}{
		"another machine": {func(m *qemu.Machine) { m.CPUs = 2 }, string(sound)},
		"cut short":       {func(*qemu.Machine) {}, string(sound[:len(sound)/2])},
		"garbage":         {func(*qemu.Machine) {}, strings.Repeat("garbage ", 1000)},
		"nothing":         {func(*qemu.Machine) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := l.machine(t, strings.ReplaceAll(name, " ", "-"))
			m.Incoming = true
			c.alter(&m)
			p := l.start(t, m)
			f := memfile(t)
			defer f.Close()
			if _, err := f.WriteString(c.state); err != nil {
				t.Fatal(err)
			}
			err := p.monitor.LoadState(t.Context(), f)
			if name == "another machine" && err == nil {
				return // a second CPU that was never started is like none
			}
			if !errors.Is(err, qemu.ErrStateRejected) {
				t.Errorf("err = %v, want ErrStateRejected", err)
			}
		})
	}
}

func TestSwitchOverlayFreezesTheDisk(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(t, "a")
	m.Disk = l.qcow2(t, "base.qcow2")
	p := l.start(t, m)
	p.io(t, "write -P 1 0 128k")
	top := l.qcow2(t, "top.qcow2", "-u", "-b", "base.qcow2", "-F", "qcow2")
	if err := p.monitor.AddOverlay(t.Context(), top, "top"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.monitor.Cont(t.Context()), p.monitor.Stop(t.Context()), p.monitor.SwitchOverlay(t.Context(), qemu.DiskNode, "top")); err != nil {
		t.Fatal(err)
	}
	frozen, err := os.ReadFile(m.Disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.monitor.Cont(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.io(t, "write -P 2 0 64k")
	p.io(t, "flush")
	chain, err := p.monitor.Chain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]qemu.BlockNode{{Name: "top", File: top}, {Name: qemu.DiskNode, File: m.Disk}}, chain); diff != "" {
		t.Error(diff)
	}
	if node, err := p.monitor.TopNode(t.Context()); err != nil || node != "top" {
		t.Errorf("top node = %s, %v", node, err)
	}
	imageHas(t, m.Disk, "1", "0")
	imageHas(t, top, "2", "0")
	imageHas(t, top, "1", "64k")
	after, err := os.ReadFile(m.Disk)
	if err != nil || string(frozen) != string(after) {
		t.Errorf("the frozen file changed, %v", err)
	}
	// Another QEMU may use it while this one does.
	n := l.machine(t, "b")
	n.Disk = l.qcow2(t, "other.qcow2", "-b", m.Disk, "-F", "qcow2")
	other := l.start(t, n)
	other.io(t, "read -P 1 0 128k")
	other.io(t, "write -P 3 0 64k")
	p.io(t, "read -P 2 0 64k")
}

func TestOverlayThatIsNotUsedCanBeRemoved(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(t, "a")
	m.Disk = l.qcow2(t, "base.qcow2")
	p := l.start(t, m)
	top := l.qcow2(t, "top.qcow2", "-u", "-b", "base.qcow2", "-F", "qcow2")
	for range 2 {
		if err := p.monitor.AddOverlay(t.Context(), top, "top"); err != nil {
			t.Fatal(err)
		}
		if err := p.monitor.RemoveOverlay(t.Context(), "top"); err != nil {
			t.Fatal(err)
		}
	}
	var refused *qmp.CommandError
	if err := p.monitor.AddOverlay(t.Context(), "/no/such/file", "x"); !errors.As(err, &refused) {
		t.Errorf("overlay that is not there: %v", err)
	}
	if err := p.monitor.SwitchOverlay(t.Context(), qemu.DiskNode, "no-such-node"); !errors.As(err, &refused) {
		t.Errorf("node that is not there: %v", err)
	}
}

func TestStreamShortensTheChain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	base := l.qcow2(t, "base.qcow2")
	run(t, "qemu-io", "-f", "qcow2", "-c", "write -P 1 0 64k", base)
	middle := l.qcow2(t, "middle.qcow2", "-b", "base.qcow2", "-F", "qcow2")
	run(t, "qemu-io", "-f", "qcow2", "-c", "write -P 2 64k 64k", middle)
	m := l.machine(t, "a")
	m.Disk = l.qcow2(t, "top.qcow2", "-b", "middle.qcow2", "-F", "qcow2")
	p := l.start(t, m)
	if err := p.monitor.Cont(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.io(t, "write -P 3 128k 64k")
	// A frozen file is renamed while QEMU has it open.
	moved := filepath.Join(l.dir, "layer")
	if err := os.Rename(middle, moved); err != nil {
		t.Fatal(err)
	}
	chain, err := p.monitor.Chain(t.Context())
	if err != nil || len(chain) != 3 {
		t.Fatalf("chain = %v, %v", chain, err)
	}
	if err := p.monitor.Stream(t.Context(), qemu.DiskNode, chain[2].Name, "base.qcow2"); err != nil {
		t.Fatal(err)
	}
	short, err := p.monitor.Chain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]qemu.BlockNode{chain[0], chain[2]}, short); diff != "" {
		t.Error(diff)
	}
	for pattern, offset := range map[string]string{"1": "0", "2": "64k", "3": "128k"} {
		p.io(t, "read -P "+pattern+" "+offset+" 64k")
		imageHas(t, m.Disk, pattern, offset)
	}
	var info struct {
		Backing string `json:"backing-filename"`
	}
	if err := json.Unmarshal([]byte(run(t, "qemu-img", "info", "-U", "--output=json", m.Disk)), &info); err != nil || info.Backing != "base.qcow2" {
		t.Errorf("backing file = %q, %v", info.Backing, err)
	}
	if err := p.monitor.Stream(t.Context(), qemu.DiskNode, "", ""); err != nil {
		t.Fatal(err)
	}
	if alone, err := p.monitor.Chain(t.Context()); err != nil || len(alone) != 1 {
		t.Errorf("chain = %v, %v", alone, err)
	}
	if err := p.monitor.Stream(t.Context(), "no-such-node", "", ""); err == nil {
		t.Error("a node that is not there was streamed")
	}
}

func TestStreamIsCancelledWithTheContext(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	base := l.qcow2(t, "base.qcow2")
	run(t, "qemu-io", "-f", "qcow2", "-c", "write -P 1 0 32M", base)
	m := l.machine(t, "a")
	m.Disk = l.qcow2(t, "top.qcow2", "-b", "base.qcow2", "-F", "qcow2")
	p := l.start(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	events, unsubscribe := p.monitor.Events(64)
	defer unsubscribe()
	go func() {
		for event := range events {
			if event.Name == "JOB_STATUS_CHANGE" {
				cancel()
			}
		}
	}()
	if err := p.monitor.Stream(ctx, qemu.DiskNode, "", ""); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want the cancellation or success", err)
	}
	var jobs []any
	if err := p.monitor.Client().Execute(t.Context(), "query-block-jobs", nil, &jobs); err != nil || len(jobs) > 0 {
		t.Errorf("jobs = %v, %v", jobs, err)
	}
	p.io(t, "read -P 1 0 32M")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	run(t, "cp", "--sparse=always", from, to)
}

// Machine code of guests that do one thing to the machine.
const (
	// 'H' to the first serial port, then wait until it has left.
	sayHello  = "\xba\xf8\x03\xb0\x48\xee\xba\xfd\x03\xec\xa8\x40\x74\xfb"
	resetKey  = "\xb0\xfe\xe6\x64" // the keyboard controller's reset
	powerOff  = "\xba\x04\x06\xb8\x00\x20\xef"
	panicPort = "\xba\x05\x05\xb0\x01\xee"
)

// awaitEvent returns the next event of that name.
func awaitEvent(t *testing.T, events <-chan qmp.Event, name string) qmp.Event {
	t.Helper()
	for {
		select {
		case event, ok := <-events:
			if !ok {
				t.Fatalf("the connection ended before %s", name)
			}
			if event.Name == name {
				return event
			}
		case <-time.After(60 * time.Second):
			t.Fatalf("no %s", name)
		}
	}
}

// guest starts a machine that runs code, and returns it with its events.
func (l lab) guest(t *testing.T, code string) (*proc, qemu.Machine, <-chan qmp.Event) {
	t.Helper()
	m := l.machine(t, "a")
	m.Disk = l.bootSector(t, "boot.qcow2", code)
	p := l.start(t, m)
	events, cancel := p.monitor.Events(1000)
	t.Cleanup(cancel)
	if err := p.monitor.Cont(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p, m, events
}

func TestGuestRebootsInPlace(t *testing.T) {
	t.Parallel()
	p, m, events := newLab(t).guest(t, sayHello+resetKey)
	awaitHellos(t, m, events, 3)
	if status, err := p.monitor.Status(t.Context()); err != nil || status != qemu.StatusRunning {
		t.Errorf("status = %s, %v", status, err)
	}
}

// awaitHellos follows the guest's resets until it has said hello n times, each
// time after its firmware.
func awaitHellos(t *testing.T, m qemu.Machine, events <-chan qmp.Event, n int) {
	t.Helper()
	for {
		log, err := os.ReadFile(m.SerialLog())
		if err != nil || strings.Trim(string(log), "H") != "" {
			t.Fatalf("serial log = %.80q, %v", log, err)
		}
		if len(log) >= n {
			return
		}
		awaitEvent(t, events, "RESET")
	}
}

func TestGuestPowersOff(t *testing.T) {
	t.Parallel()
	p, _, events := newLab(t).guest(t, powerOff)
	event := awaitEvent(t, events, "SHUTDOWN")
	if !strings.Contains(string(event.Data), "guest-shutdown") {
		t.Errorf("shutdown by %s", event.Data)
	}
	<-p.ended
	if p.err != nil {
		t.Errorf("qemu ended with %v, want status 0", p.err)
	}
}

func TestGuestPanics(t *testing.T) {
	t.Parallel()
	p, _, events := newLab(t).guest(t, panicPort)
	awaitEvent(t, events, "GUEST_PANICKED")
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("qemu ended with status %d, want 1", code)
	}
}

func TestSerialLogMayBeTruncated(t *testing.T) {
	t.Parallel()
	_, m, events := newLab(t).guest(t, sayHello+resetKey)
	awaitHellos(t, m, events, 2)
	if err := os.Truncate(m.SerialLog(), 0); err != nil {
		t.Fatal(err)
	}
	awaitHellos(t, m, events, 1)
}
