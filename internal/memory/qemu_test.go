package memory_test

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pandovm/pando/internal/memory"
)

// qemu is a real QEMU without a guest: qtest writes to its RAM, QMP's pmemsave
// reads it. Both go through QEMU's own memory core.
type qemu struct {
	lineMachine
	qmp     net.Conn
	answers *bufio.Reader
	dir     string
}

// qemuArgs are the arguments that concern memory, as the product uses them.
func qemuArgs(dir, ram string, size int64) []string {
	return []string{
		"-S", "-display", "none", "-nodefaults", "-no-user-config",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,resourcecontrol=deny",
		"-m", fmt.Sprintf("%dk", size>>10),
		"-object", fmt.Sprintf("memory-backend-file,id=ram0,size=%d,mem-path=%s,share=on", size, ram),
		"-qmp", "unix:" + filepath.Join(dir, "qmp.sock") + ",server=on,wait=off",
	}
}

func startQEMU(t testing.TB, dir string, size int64) machine {
	t.Helper()
	return startQEMUAs(t, dir, size, func(*exec.Cmd, string) {})
}

// startQEMUAs lets change the command before it starts.
func startQEMUAs(t testing.TB, dir string, size int64, change func(cmd *exec.Cmd, dir string)) machine {
	t.Helper()
	dir = machineDir(t, dir)
	env, ram, sock := libraryEnv(t, dir, size)
	q := &qemu{lineMachine: lineMachine{t: t, size: size}, dir: dir}
	args := append(qemuArgs(dir, ram, size), "-machine", "pc,memory-backend=ram0", "-accel", "tcg", "-cpu", "Nehalem",
		"-qtest", "unix:"+filepath.Join(dir, "qtest.sock")+",server=on,wait=off", "-qtest-log", "/dev/null")
	q.cmd = exec.CommandContext(t.Context(), "qemu-system-x86_64", args...)
	q.cmd.Env = env
	q.cmd.Stderr = &q.stderr
	change(q.cmd, dir)
	if err := q.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.stop)
	q.ctl = q.dial(sock)
	qtest := connect(t, filepath.Join(dir, "qtest.sock"))
	q.to, q.from = qtest, bufio.NewReaderSize(qtest, 1<<20)
	q.qmp = connect(t, filepath.Join(dir, "qmp.sock"))
	q.answers = bufio.NewReader(q.qmp)
	if _, err := q.answers.ReadString('\n'); err != nil {
		t.Fatalf("QMP greeting: %v: %s", err, q.stderr.String())
	}
	q.execute("qmp_capabilities", nil)
	return q
}

func connect(t testing.TB, path string) net.Conn {
	t.Helper()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(t.Context(), "unix", path)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(err)
		}
	}
}

func (q *qemu) execute(command string, args any) {
	q.t.Helper()
	order, err := json.Marshal(map[string]any{"execute": command, "arguments": args})
	if args == nil {
		order, err = json.Marshal(map[string]any{"execute": command})
	}
	if err != nil {
		q.t.Fatal(err)
	}
	if _, err := q.qmp.Write(append(order, '\n')); err != nil {
		q.t.Fatal(err)
	}
	for {
		line, err := q.answers.ReadString('\n')
		if err != nil {
			q.t.Fatalf("%s: %v: %s", command, err, q.stderr.String())
		}
		switch {
		case strings.HasPrefix(line, `{"return"`):
			return
		case strings.HasPrefix(line, `{"error"`):
			q.t.Fatalf("%s: %s", command, line)
		}
	}
}

func (q *qemu) fill(offset, length int64, seed uint64) {
	var digits strings.Builder
	for range (length + memory.PageSize - 1) / memory.PageSize {
		unit := fillUnit(&seed)
		digits.WriteString(strings.Repeat(hex.EncodeToString(unit[:]), memory.PageSize/len(unit)))
	}
	q.sayOK("write 0x%x 0x%x 0x%s", offset, length, digits.String()[:2*length])
}
func (q *qemu) zero(offset, length int64) { q.sayOK("memset 0x%x 0x%x 0x00", offset, length) }
func (q *qemu) touch(offset, length int64) {
	q.sayOK("read 0x%x 0x%x", offset, length)
}

// floor leaves out the first MiB, where a PC has more than RAM.
func (q *qemu) floor() int64 { return 1 << 20 }

func (q *qemu) content() []byte {
	q.t.Helper()
	path := filepath.Join(q.dir, "saved")
	q.execute("pmemsave", map[string]any{"val": q.floor(), "size": q.size - q.floor(), "filename": path})
	f, err := os.Open(path)
	if err != nil {
		q.t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, q.size)
	if _, err := io.ReadFull(f, b[q.floor():]); err != nil {
		q.t.Fatal(err)
	}
	return b
}
