package kernel

import (
	"encoding/binary"
	"errors"
)

var errLZ4 = errors.New("lz4 data is damaged")

// unpackLZ4 reads the blocks of the lz4 format that kernels use, each a length
// and that many bytes, without a frame around them.
func unpackLZ4(in []byte, size int) ([]byte, error) {
	out := make([]byte, 0, size)
	for len(in) > 0 {
		if len(in) < 4 {
			return nil, errLZ4
		}
		length := binary.LittleEndian.Uint32(in)
		in = in[4:]
		if uint64(length) > uint64(len(in)) {
			return nil, errLZ4
		}
		var err error
		if out, err = unpackBlock(out, in[:length]); err != nil {
			return nil, err
		}
		in = in[length:]
	}
	return out, nil
}

// unpackBlock appends what one block holds: sequences of literal bytes and of a
// copy of bytes before them. The last sequence has no copy. It never grows out
// beyond its capacity.
func unpackBlock(out, in []byte) ([]byte, error) {
	begin := len(out) // copies do not reach into earlier blocks
	for len(in) > 0 {
		token := in[0]
		literals, rest, err := lz4Length(int(token>>4), in[1:])
		if err != nil || literals > len(rest) || literals > cap(out)-len(out) {
			return nil, errLZ4
		}
		out = append(out, rest[:literals]...)
		if in = rest[literals:]; len(in) == 0 {
			return out, nil
		}
		if len(in) < 2 {
			return nil, errLZ4
		}
		offset := int(binary.LittleEndian.Uint16(in))
		length, rest, err := lz4Length(int(token&15), in[2:])
		const shortest = 4
		length += shortest
		if err != nil || offset == 0 || offset > len(out)-begin || length > cap(out)-len(out) {
			return nil, errLZ4
		}
		out = appendCopy(out, offset, length)
		in = rest
	}
	return out, nil
}

// appendCopy repeats length bytes from offset before the end. The two may
// overlap: then what was just written is repeated in turn.
func appendCopy(out []byte, offset, length int) []byte {
	for length > 0 {
		n := min(offset, length)
		out = append(out, out[len(out)-offset:][:n]...)
		length -= n
	}
	return out
}

// lz4Length reads the bytes that continue a length of 15.
func lz4Length(n int, in []byte) (int, []byte, error) {
	if n < 15 {
		return n, in, nil
	}
	for i, b := range in {
		n += int(b)
		if b < 255 {
			return n, in[i+1:], nil
		}
	}
	return 0, nil, errLZ4
}
