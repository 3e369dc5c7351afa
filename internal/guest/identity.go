package guest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/pandovm/pando/internal/link"
)

// NewIdentity makes an identity that no other machine has: a machine id, a boot
// id, and SSH host keys, of types ed25519 and ecdsa (P-256). Making the keys here
// takes the host less than a millisecond; a guest would need seconds under
// emulation.
func NewIdentity(hostname string) (*link.Identity, error) {
	id := &link.Identity{Hostname: hostname, BootID: uuid.NewString()}
	machine := uuid.New() // systemd wants a valid random UUID here as well
	id.MachineID = hex.EncodeToString(machine[:])
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make ed25519 key: %w", err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make ecdsa key: %w", err)
	}
	for _, k := range []struct {
		kind string
		key  crypto.Signer
	}{{"ed25519", ed}, {"ecdsa", ec}} {
		hk, err := hostKey(k.kind, k.key, "root@"+hostname)
		if err != nil {
			return nil, err
		}
		id.SSHHostKeys = append(id.SSHHostKeys, hk)
	}
	return id, nil
}

func hostKey(kind string, key crypto.Signer, comment string) (link.HostKey, error) {
	block, err := ssh.MarshalPrivateKey(key, comment)
	if err != nil {
		return link.HostKey{}, fmt.Errorf("encode %s key: %w", kind, err)
	}
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		return link.HostKey{}, fmt.Errorf("encode %s key: %w", kind, err)
	}
	line := strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(public)), "\n")
	return link.HostKey{
		Type: kind, Private: string(pem.EncodeToMemory(block)), Public: line + " " + comment + "\n",
	}, nil
}
