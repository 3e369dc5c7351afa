package link

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

const (
	// Version is the version of the protocol's two sides.
	Version = "0.1.0"
	// PortName is the name of the virtio-serial port.
	PortName = "org.pando.agent"
	// MaxBody bounds the record of a preamble and of a confirmation, in bytes.
	MaxBody = 64 << 10
	// TokenSize is the length of a token and of a reply nonce, in bytes.
	TokenSize = 16
)

// Token marks the beginning of a preamble, and as a reply nonce that of a
// confirmation. Its text form is base64.
type Token [TokenSize]byte

// FreshToken returns the public token that opens the first session of an agent,
// and any session after the host has hung up.
func FreshToken() Token {
	return Token{0xf5, 0x70, 0x61, 0x6e, 0x64, 0x6f, 0x00, 0xff, 0x9d, 0x21, 0xc7, 0x4e, 0xb3, 0x06, 0xfa, 0x13}
}

// NewToken returns a random token.
func NewToken() Token {
	var t Token
	_, _ = rand.Read(t[:]) // never fails: the runtime ends the process instead
	return t
}

// IsZero reports whether t was never set.
func (t Token) IsZero() bool { return t == Token{} }

// MarshalText encodes t in base64.
func (t Token) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, t[:]), nil
}

// UnmarshalText decodes base64 of exactly 16 bytes.
func (t *Token) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("decode token: %w", err)
	}
	if len(b) != TokenSize {
		return fmt.Errorf("decode token: %d bytes, want %d", len(b), TokenSize)
	}
	copy(t[:], b)
	return nil
}
