// Package kernel turns a Linux kernel as distributions ship it, a compressed
// bzImage, into the ELF file inside.
//
// Both boot with QEMU's -kernel, and the ELF file is better for many VMs: QEMU
// maps it instead of reading it into memory of its own (14 MB in each process
// for Debian's cloud kernel), and the guest need not decompress itself under
// emulation. What is lost is the random placement of the kernel in the guest's
// memory, which the decompressor does; VMs that start from one saved machine
// share that placement anyway.
//
// The input is a file of a distribution's package: bounded and checked, and
// refused with ErrUnsupported where the caller should boot the bzImage itself.
// The package imports the standard library only; image and rootfs import it.
package kernel

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// ErrUnsupported says that the file is no kernel which can be unpacked to one
// that QEMU boots.
var ErrUnsupported = errors.New("kernel cannot be unpacked")

// Bounds on what is read and written. A kernel with everything built in has
// 15 MB packed and 80 MB unpacked.
const (
	maxPacked   = 128 << 20
	maxUnpacked = 256 << 20
)

// Unpack writes the ELF file inside the bzImage to w.
func Unpack(ctx context.Context, bzImage io.Reader, w io.Writer) error {
	image, err := io.ReadAll(io.LimitReader(bzImage, maxPacked+1))
	if err != nil {
		return fmt.Errorf("read kernel: %w", err)
	}
	if len(image) > maxPacked {
		return fmt.Errorf("%w: it has more than %d bytes", ErrUnsupported, maxPacked)
	}
	packed, err := payload(image)
	if err != nil {
		return err
	}
	vmlinux, err := decompress(ctx, packed)
	if err != nil {
		return err
	}
	if err := check(vmlinux); err != nil {
		return err
	}
	if _, err := w.Write(vmlinux); err != nil {
		return fmt.Errorf("write kernel: %w", err)
	}
	return nil
}

// Offsets in the boot protocol's header (Documentation/arch/x86/boot.rst).
const (
	atSectors = 0x1f1
	atMagic   = 0x202
	atVersion = 0x206
	atPayload = 0x248
	headerEnd = 0x250
)

// payload finds the compressed kernel.
func payload(image []byte) ([]byte, error) {
	if len(image) < headerEnd || string(image[atMagic:atMagic+4]) != "HdrS" {
		return nil, fmt.Errorf("%w: it is no bzImage", ErrUnsupported)
	}
	if version := binary.LittleEndian.Uint16(image[atVersion:]); version < 0x208 {
		return nil, fmt.Errorf("%w: boot protocol %#x is too old", ErrUnsupported, version)
	}
	sectors := int(image[atSectors])
	if sectors == 0 {
		sectors = 4
	}
	start := uint64(sectors+1)*512 + uint64(binary.LittleEndian.Uint32(image[atPayload:]))
	length := uint64(binary.LittleEndian.Uint32(image[atPayload+4:]))
	const shortest = 8 // a magic number and the unpacked size
	if length < shortest || start+length > uint64(len(image)) {
		return nil, fmt.Errorf("%w: its payload lies outside the file", ErrUnsupported)
	}
	return image[start : start+length], nil
}

// decompress unpacks a payload. Its last four bytes are the unpacked size, which
// is a part of the format for gzip and stands behind it for the others.
func decompress(ctx context.Context, packed []byte) ([]byte, error) {
	size := binary.LittleEndian.Uint32(packed[len(packed)-4:])
	if size > maxUnpacked {
		return nil, fmt.Errorf("%w: it has %d bytes unpacked", ErrUnsupported, size)
	}
	var out []byte
	var err error
	body := packed[:len(packed)-4]
	switch {
	case bytes.HasPrefix(packed, []byte{0x1f, 0x8b}):
		out, err = gunzip(packed, size)
	case bytes.HasPrefix(packed, []byte("BZh")):
		out, err = readSize(bzip2.NewReader(bytes.NewReader(body)), size)
	case bytes.HasPrefix(packed, []byte{0x02, 0x21, 0x4c, 0x18}):
		out, err = unpackLZ4(body[4:], int(size))
	case bytes.HasPrefix(packed, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		out, err = pipe(ctx, body, size, "xz", "--decompress", "--stdout", "--single-stream")
	case bytes.HasPrefix(packed, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		out, err = pipe(ctx, body, size, "zstd", "--decompress", "--stdout", "--quiet")
	default:
		return nil, fmt.Errorf("%w: its compression % x is unknown", ErrUnsupported, packed[:4])
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if len(out) != int(size) {
		return nil, fmt.Errorf("%w: it has %d bytes instead of %d", ErrUnsupported, len(out), size)
	}
	return out, nil
}

func gunzip(packed []byte, size uint32) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	r.Multistream(false)
	return readSize(r, size)
}

// readSize reads one byte more than there should be, so that excess is noticed.
func readSize(r io.Reader, size uint32) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, int64(size)+1))
}

// pipe runs a decompressor that the standard library does not have.
func pipe(ctx context.Context, packed []byte, size uint32, program string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a program that has more to say
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = bytes.NewReader(packed)
	r, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	out, err := readSize(r, size)
	if len(out) > int(size) {
		cancel()
	}
	return out, errors.Join(err, cmd.Wait())
}

// check insists on an x86-64 kernel with the entry point that QEMU uses (PVH).
func check(vmlinux []byte) error {
	f, err := elf.NewFile(bytes.NewReader(vmlinux))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if f.Class != elf.ELFCLASS64 || f.Machine != elf.EM_X86_64 {
		return fmt.Errorf("%w: it is for %v", ErrUnsupported, f.Machine)
	}
	for _, segment := range f.Progs {
		if segment.Type == elf.PT_NOTE && segment.Filesz < 1<<20 && hasPVHEntry(segment.Open()) {
			return nil
		}
	}
	return fmt.Errorf("%w: it has no PVH entry point", ErrUnsupported)
}

// hasPVHEntry looks for the note "Xen" 18 among the notes of a segment.
func hasPVHEntry(r io.Reader) bool {
	const entryPoint = 18
	for {
		var note struct{ NameSize, DescSize, Type uint32 }
		if err := binary.Read(r, binary.LittleEndian, &note); err != nil {
			return false
		}
		if note.NameSize > 1<<16 || note.DescSize > 1<<20 {
			return false
		}
		name := make([]byte, align(note.NameSize))
		if _, err := io.ReadFull(r, name); err != nil {
			return false
		}
		if note.Type == entryPoint && string(name[:note.NameSize]) == "Xen\x00" {
			return true
		}
		if _, err := io.CopyN(io.Discard, r, int64(align(note.DescSize))); err != nil {
			return false
		}
	}
}

// align rounds up to the four bytes of a note's fields.
func align(n uint32) uint32 { return (n + 3) &^ 3 }
