package memory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/pandovm/pando/internal/layer"
)

// The binary form of a Map, version 1, numbers little-endian:
//
//	"PNDOMAP" 0x01
//	uint64 size in bytes, uint32 number of layers, uint32 number of extents
//	per layer: the 16 bytes of its id
//	per extent, as varints in pages: gap to the end of the one before, length,
//	  layer index, and the signed distance of its layer offset from where the
//	  last extent of the same layer ended
//	uint32 CRC-32C of all of the above
const (
	mapMagic      = "PNDOMAP\x01"
	mapHeader     = len(mapMagic) + 8 + 4 + 4
	mapTrailer    = 4
	minExtentSize = 4
)

var errMapShort = errors.New("memory map: it ends too early")

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// MarshalBinary returns the versioned, checksummed form of a valid map.
func (m Map) MarshalBinary() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	b := make([]byte, 0, mapHeader+16*len(m.Layers)+8*len(m.Extents)+mapTrailer)
	b = append(b, mapMagic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Size))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Layers)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Extents)))
	for _, id := range m.Layers {
		raw, err := id.Bytes()
		if err != nil {
			return nil, err
		}
		b = append(b, raw[:]...)
	}
	end, ends := int64(0), make([]int64, len(m.Layers))
	for _, e := range m.Extents {
		b = binary.AppendUvarint(b, uint64(e.Offset-end)/PageSize)
		b = binary.AppendUvarint(b, uint64(e.Length)/PageSize)
		b = binary.AppendUvarint(b, uint64(e.Layer))
		b = binary.AppendVarint(b, (e.LayerOffset-ends[e.Layer])/PageSize)
		end, ends[e.Layer] = e.Offset+e.Length, e.LayerOffset+e.Length
	}
	return binary.LittleEndian.AppendUint32(b, castagnoli(b)), nil
}

// UnmarshalBinary reads what MarshalBinary wrote. Anything else, and anything
// that Validate refuses, is an error and leaves m as it was.
func (m *Map) UnmarshalBinary(data []byte) error {
	if len(data) < mapHeader+mapTrailer {
		return errMapShort
	}
	if string(data[:len(mapMagic)]) != mapMagic {
		return errors.New("memory map: not a map of a known version")
	}
	body := data[:len(data)-mapTrailer]
	if castagnoli(body) != binary.LittleEndian.Uint32(data[len(body):]) {
		return errors.New("memory map: its checksum is wrong")
	}
	read, err := decodeMap(body)
	if err != nil {
		return err
	}
	if err := read.Validate(); err != nil {
		return err
	}
	*m = read
	return nil
}

func decodeMap(body []byte) (Map, error) {
	b := body[len(mapMagic):]
	size := binary.LittleEndian.Uint64(b)
	layers, extents := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
	b = b[16:]
	if size > uint64(MaxSize) || layers > MaxLayers || extents > MaxExtents {
		return Map{}, fmt.Errorf("memory map: %d bytes, %d layers, %d extents are beyond the limits", size, layers, extents)
	}
	// Nothing is allocated for more than the data can hold.
	if len(b) < int(layers)*16+int(extents)*minExtentSize {
		return Map{}, errMapShort
	}
	m := Map{Size: int64(size)}
	for range layers {
		m.Layers = append(m.Layers, layer.IDFromBytes([16]byte(b)))
		b = b[16:]
	}
	d := extentDecoder{rest: b, ends: make([]int64, layers)}
	if extents > 0 {
		m.Extents = make([]Extent, 0, extents)
	}
	for range extents {
		e, err := d.next()
		if err != nil {
			return Map{}, err
		}
		m.Extents = append(m.Extents, e)
	}
	if len(d.rest) != 0 {
		return Map{}, fmt.Errorf("memory map: %d bytes follow its end", len(d.rest))
	}
	return m, nil
}

// extentDecoder reads extents; all its numbers are in pages.
type extentDecoder struct {
	rest []byte
	end  int64
	ends []int64
}

func (d *extentDecoder) next() (Extent, error) {
	gap, err := d.number()
	if err != nil {
		return Extent{}, err
	}
	length, err := d.number()
	if err != nil {
		return Extent{}, err
	}
	index, err := d.number()
	if err != nil {
		return Extent{}, err
	}
	distance, n := binary.Varint(d.rest)
	if n <= 0 {
		return Extent{}, errMapShort
	}
	d.rest = d.rest[n:]
	const limit = MaxSize / PageSize
	if index >= int64(len(d.ends)) || distance < -limit || distance > limit {
		return Extent{}, errors.New("memory map: an extent points outside its layers")
	}
	from := d.end + gap
	at := d.ends[index] + distance
	d.end, d.ends[index] = from+length, at+length
	if d.end > limit || d.ends[index] > limit || at < 0 {
		return Extent{}, errors.New("memory map: an extent ends beyond the limits")
	}
	return Extent{Offset: from * PageSize, Length: length * PageSize, Layer: int(index), LayerOffset: at * PageSize}, nil
}

// number reads a varint that is small enough never to overflow a sum of pages.
func (d *extentDecoder) number() (int64, error) {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		return 0, errMapShort
	}
	if v > uint64(MaxSize/PageSize) {
		return 0, errors.New("memory map: a number is beyond the limits")
	}
	d.rest = d.rest[n:]
	return int64(v), nil
}
