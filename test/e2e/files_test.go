package e2e

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
	pando "github.com/pandovm/pando/sdk"
)

// asAgent runs a command as the account that commands run as, which Lab.Run does
// not, and returns its output.
func asAgent(t *testing.T, l *testlab.Lab, vm, command string) string {
	t.Helper()
	res, err := l.Client.VMs.Exec(t.Context(), vm, api.ExecRequest{Command: command})
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	if res.StatusCode == nil || *res.StatusCode != 0 {
		t.Fatalf("%s: it failed: %+v", command, res)
	}
	return res.Stdout
}

func TestFiles(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	f := l.Client.VMs.Files(v.ID)
	content := make([]byte, 20<<20)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	if err := f.WriteFile(t.Context(), "/home/agent/new/one", content, pando.FileOptions{SHA256: digest}); err != nil {
		t.Fatal(err)
	}
	if err := f.Upload(t.Context(), "/home/agent/new/parts", bytes.NewReader(content), int64(len(content)), pando.FileOptions{SHA256: digest, Mode: 0o640}, nil); err != nil {
		t.Fatal(err)
	}
	// The account that commands run as can use and remove what was made.
	if got := asAgent(t, l, v.ID, "cd ~/new && sha256sum one parts && stat -c '%U %a' . one parts && rm one"); got !=
		digest+"  one\n"+digest+"  parts\nagent 755\nagent 600\nagent 640\n" {
		t.Errorf("the guest says %s", got)
	}
	got, err := f.ReadFile(t.Context(), "/home/agent/new/parts")
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("read %d bytes: %v", len(got), err)
	}
	if _, err := f.ReadFile(t.Context(), "/home/agent/new/one"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
	if err := fstest.TestFS(f.FS(t.Context(), "/etc"), "passwd", "group"); err != nil {
		t.Error(err)
	}
	if left := l.Run(v.ID, "ls -A /home/agent/new"); left != "parts\n" {
		t.Errorf("left behind: %s", left)
	}
}

// A tree goes from a VM into its fork's child, and the source stays as it was.
func TestTreesBetweenRelatives(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.Create(testlab.Busybox)
	f := l.Client.VMs.Files(v.ID)
	if err := f.MkdirAll(t.Context(), "/home/agent/d", 0); err != nil {
		t.Fatal(err)
	}
	archive, err := f.Archive(t.Context(), "/home/agent")
	if err != nil {
		t.Fatal(err)
	}
	forks, err := l.Client.VMs.Fork(t.Context(), v.ID, api.ForkVMRequest{})
	if err != nil || forks.Forks[0].VM == nil {
		t.Fatalf("%+v, %v", forks, err)
	}
	child := l.Client.VMs.Files(forks.Forks[0].VM.ID)
	if err := child.Extract(t.Context(), "/home/agent/copy", archive, pando.ExtractOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := child.ReadDir(t.Context(), "/home/agent/copy")
	if err != nil || !strings.Contains(fmt.Sprint(entries), "{d directory") {
		t.Errorf("%v, %v", entries, err)
	}
	if exists, err := f.Exists(t.Context(), "/home/agent/copy"); err != nil || exists {
		t.Errorf("the source has it too: %v", err)
	}
}
