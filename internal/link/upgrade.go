package link

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// The paths of a change of the agent. PathUpgrade takes a FrameUpgrade,
// FrameStdin in any amount and FrameStdinEnd, and answers FrameReply: without an
// error the new agent takes over as soon as the host has read it, and the next
// epoch is with that one. PathUpgraded, sent within that epoch, says that the
// new agent is good; without it the old one comes back after the patience that
// the order grants.
const (
	PathUpgrade  = "/upgrade"
	PathUpgraded = "/upgraded"
)

// FrameUpgrade carries an UpgradeOrder.
const FrameUpgrade FrameType = 6

// MaxAgent bounds the size of an agent, in bytes.
const MaxAgent = 64 << 20

// UpgradeOrder announces an agent that follows.
type UpgradeOrder struct {
	// Version is what the new agent says when it is asked.
	Version string
	// Size is its length in bytes, SHA256 its sum, 32 bytes.
	Size   int64
	SHA256 []byte
	// Force goes on though commands or terminals run, which are then cut off from
	// the host.
	Force bool
	// Patience is how long the old agent waits for PathUpgraded.
	Patience time.Duration
}

const (
	upgradeVersion = iota + 1
	upgradeSize
	upgradeSHA256
	upgradeForce
	upgradePatience
)

// MarshalBinary encodes o as a record. It never fails.
func (o UpgradeOrder) MarshalBinary() ([]byte, error) {
	var enc encoder
	enc.text(upgradeVersion, o.Version)
	enc.int(upgradeSize, o.Size)
	enc.bytes(upgradeSHA256, o.SHA256)
	enc.flag(upgradeForce, o.Force)
	enc.int(upgradePatience, int64(o.Patience))
	return enc.b, nil
}

// UnmarshalBinary decodes a record.
func (o *UpgradeOrder) UnmarshalBinary(b []byte) error {
	*o = UpgradeOrder{}
	d := decoder{rest: b}
	for d.next() {
		switch d.tag {
		case upgradeVersion:
			o.Version = d.text()
		case upgradeSize:
			o.Size = d.int()
		case upgradeSHA256:
			o.SHA256 = d.clone()
		case upgradeForce:
			o.Force = d.flag()
		case upgradePatience:
			o.Patience = time.Duration(d.int())
		}
	}
	if d.err == nil && (o.Size <= 0 || o.Size > MaxAgent || len(o.SHA256) != 32 || o.Version == "") {
		d.err = errRecord
	}
	if d.err != nil {
		return fmt.Errorf("decode upgrade: %w", d.err)
	}
	return nil
}

// BuildHead is how much of an agent's file AgentVersion needs to see.
const BuildHead = 4096

// AgentVersion returns the version of the agent whose file begins with head:
// the protocol's, and what tells its builds apart.
func AgentVersion(head []byte) string {
	id := buildID(head)
	if id == "" {
		return Version
	}
	return Version + "+" + id
}

// buildID returns the beginning of the last part of the note that the Go linker
// puts into the head of each program: a hash of the program.
func buildID(head []byte) string {
	const shown = 10
	// An ELF note: the length of the name, that of the text, the kind, the name.
	name := []byte("\x04\x00\x00\x00Go\x00\x00")
	_, text, found := bytes.Cut(head[:min(len(head), BuildHead)], name)
	if !found {
		return ""
	}
	if end := bytes.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }); end >= 0 {
		text = text[:end]
	}
	id := string(text[bytes.LastIndexByte(text, '/')+1:])
	if len(id) < shown {
		return ""
	}
	return strings.Map(wordOnly, id[:shown])
}

// wordOnly keeps letters and digits.
func wordOnly(r rune) rune {
	if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
		return r
	}
	return '0'
}
