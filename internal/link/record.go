package link

import (
	"encoding/binary"
	"errors"
)

var errRecord = errors.New("malformed record")

const fieldHeader = 5

type encoder struct{ b []byte }

func (e *encoder) bytes(tag byte, p []byte) {
	e.b = append(e.b, tag)
	e.b = binary.BigEndian.AppendUint32(e.b, uint32(len(p)))
	e.b = append(e.b, p...)
}

// text leaves empty strings out: absent and empty mean the same.
func (e *encoder) text(tag byte, s string) {
	if s != "" {
		e.bytes(tag, []byte(s))
	}
}

func (e *encoder) int(tag byte, n int64) {
	var p [8]byte
	binary.BigEndian.PutUint64(p[:], uint64(n))
	e.bytes(tag, p[:])
}

func (e *encoder) flag(tag byte, set bool) {
	if set {
		e.int(tag, 1)
	}
}

func (e *encoder) token(tag byte, t Token) {
	for i := range t {
		t[i] = ^t[i]
	}
	e.bytes(tag, t[:])
}

// decoder walks the fields of a record. The first malformed field ends the walk
// and stays in err.
type decoder struct {
	rest  []byte
	tag   byte
	value []byte
	err   error
}

func (d *decoder) next() bool {
	if d.err != nil || len(d.rest) == 0 {
		return false
	}
	if len(d.rest) < fieldHeader {
		d.err = errRecord
		return false
	}
	n := binary.BigEndian.Uint32(d.rest[1:])
	if uint64(n) > uint64(len(d.rest)-fieldHeader) {
		d.err = errRecord
		return false
	}
	d.tag = d.rest[0]
	d.value = d.rest[fieldHeader : fieldHeader+int(n)]
	d.rest = d.rest[fieldHeader+int(n):]
	return true
}

func (d *decoder) text() string { return string(d.value) }

func (d *decoder) clone() []byte { return append([]byte(nil), d.value...) }

func (d *decoder) int() int64 {
	if len(d.value) != 8 {
		d.err = errRecord
		return 0
	}
	return int64(binary.BigEndian.Uint64(d.value))
}

func (d *decoder) flag() bool { return d.int() != 0 }

func (d *decoder) token() Token {
	var t Token
	if len(d.value) != TokenSize {
		d.err = errRecord
		return t
	}
	for i := range t {
		t[i] = ^d.value[i]
	}
	return t
}
