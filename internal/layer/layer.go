package layer

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// ID names a layer: "ly-" and 32 lower-case hexadecimal digits, random.
type ID string

// IDPrefix starts every ID and IDLength is the length of one in bytes.
const (
	IDPrefix = "ly-"
	IDLength = len(IDPrefix) + 32
)

// Kind says what a layer holds.
type Kind string

// The values of Kind.
const (
	KindMemory Kind = "memory"
	KindDisk   Kind = "disk"
	KindKernel Kind = "kernel"
	KindInitrd Kind = "initrd"
	KindState  Kind = "state"
)

// Layer describes an immutable file. SHA256 is lower-case hexadecimal and empty
// until Store.Sync has made the layer durable.
type Layer struct {
	ID     ID     `json:"id"`
	Kind   Kind   `json:"kind"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// NewID returns a random ID.
func NewID() ID {
	var b [16]byte
	// rand.Read never fails: it ends the program instead.
	_, _ = rand.Read(b[:])
	return IDFromBytes(b)
}

// IDFromBytes returns the ID with those random bytes.
func IDFromBytes(b [16]byte) ID { return ID(IDPrefix + hex.EncodeToString(b[:])) }

// Bytes returns the random part of an ID, and an error if the ID is malformed.
func (id ID) Bytes() ([16]byte, error) {
	var b [16]byte
	if len(id) != IDLength || id[:len(IDPrefix)] != IDPrefix {
		return b, fmt.Errorf("layer id %.64q is not %q and 32 hexadecimal digits", string(id), IDPrefix)
	}
	if _, err := hex.Decode(b[:], []byte(id[len(IDPrefix):])); err != nil || IDFromBytes(b) != id {
		return b, fmt.Errorf("layer id %q is not %q and 32 lower-case hexadecimal digits", string(id), IDPrefix)
	}
	return b, nil
}

// ParseID returns s as an ID. An ID that parses is safe as a file name.
func ParseID(s string) (ID, error) {
	if _, err := ID(s).Bytes(); err != nil {
		return "", err
	}
	return ID(s), nil
}

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool {
	switch k {
	case KindMemory, KindDisk, KindKernel, KindInitrd, KindState:
		return true
	}
	return false
}
