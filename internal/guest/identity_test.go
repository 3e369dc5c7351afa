package guest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/pandovm/pando/internal/guest"
)

func TestNewIdentity(t *testing.T) {
	t.Parallel()
	a, err := guest.NewIdentity("vm-a")
	if err != nil {
		t.Fatal(err)
	}
	if a.Hostname != "vm-a" || !regexp.MustCompile(`^[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$`).MatchString(a.MachineID) {
		t.Errorf("hostname %q, machine id %q", a.Hostname, a.MachineID)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(a.BootID) {
		t.Errorf("boot id %q", a.BootID)
	}
	var kinds []string
	for _, k := range a.SSHHostKeys {
		kinds = append(kinds, k.Type)
		signer, err := ssh.ParsePrivateKey([]byte(k.Private))
		if err != nil {
			t.Fatalf("%s: %v", k.Type, err)
		}
		public, comment, _, _, err := ssh.ParseAuthorizedKey([]byte(k.Public))
		if err != nil || comment != "root@vm-a" {
			t.Fatalf("%s: %v, comment %q", k.Type, err, comment)
		}
		if string(public.Marshal()) != string(signer.PublicKey().Marshal()) {
			t.Errorf("%s: the public key is not that of the private one", k.Type)
		}
	}
	if got := strings.Join(kinds, " "); got != "ed25519 ecdsa" {
		t.Errorf("keys of types %s", got)
	}
}

func TestIdentitiesDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 20 {
		id, err := guest.NewIdentity("same")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{id.MachineID, id.BootID, id.SSHHostKeys[0].Private, id.SSHHostKeys[1].Public} {
			if seen[s] {
				t.Fatalf("%q occurs twice", s)
			}
			seen[s] = true
		}
	}
}

// OpenSSH's own tools, where there are any, take the keys.
func TestHostKeysSuitOpenSSH(t *testing.T) {
	t.Parallel()
	keygen, err := exec.LookPath("ssh-keygen")
	if err != nil {
		return // x/crypto/ssh has parsed them above
	}
	id, err := guest.NewIdentity("vm")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range id.SSHHostKeys {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, []byte(k.Private), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), keygen, "-y", "-f", path).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != strings.TrimSpace(k.Public) {
			t.Errorf("%s: %v\n%s\nwant %s", k.Type, err, out, k.Public)
		}
	}
}
