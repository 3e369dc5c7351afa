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
	"bufio"
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

// File is where an unpacked kernel goes: it is written from its beginning and
// read again to be checked. It begins empty.
type File interface {
	io.Writer
	io.ReaderAt
}

// Unpack writes the ELF file inside the bzImage to w. After an error, what is in
// w means nothing. Neither is held in memory, unless LZ4 packed the kernel.
func Unpack(ctx context.Context, bzImage io.ReaderAt, w File) error {
	packed, err := payload(bzImage)
	if err != nil {
		return err
	}
	size, err := decompress(ctx, packed, w)
	if err != nil {
		return err
	}
	return check(io.NewSectionReader(w, 0, size))
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
func payload(image io.ReaderAt) (*io.SectionReader, error) {
	var header [headerEnd]byte
	_, err := image.ReadAt(header[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read kernel: %w", err)
	}
	if err != nil || string(header[atMagic:atMagic+4]) != "HdrS" {
		return nil, fmt.Errorf("%w: it is no bzImage", ErrUnsupported)
	}
	if version := binary.LittleEndian.Uint16(header[atVersion:]); version < 0x208 {
		return nil, fmt.Errorf("%w: boot protocol %#x is too old", ErrUnsupported, version)
	}
	sectors := int64(header[atSectors])
	if sectors == 0 {
		sectors = 4
	}
	start := (sectors+1)*512 + int64(binary.LittleEndian.Uint32(header[atPayload:]))
	length := int64(binary.LittleEndian.Uint32(header[atPayload+4:]))
	const shortest = 8 // a magic number and the unpacked size
	if length < shortest || length > maxPacked {
		return nil, fmt.Errorf("%w: its payload of %d bytes is too short, or lies outside the file", ErrUnsupported, length)
	}
	return io.NewSectionReader(image, start, length), nil
}

// decompress unpacks a payload into w and returns how much that is. Its last four
// bytes are the unpacked size, which is a part of the format for gzip and stands
// behind it for the others.
func decompress(ctx context.Context, packed *io.SectionReader, w io.Writer) (int64, error) {
	var magic, end [4]byte
	bodySize := packed.Size() - int64(len(end))
	if _, err := packed.ReadAt(end[:], bodySize); err != nil {
		return 0, fmt.Errorf("%w: its payload lies outside the file", ErrUnsupported)
	}
	if _, err := packed.ReadAt(magic[:], 0); err != nil {
		return 0, fmt.Errorf("read kernel: %w", err)
	}
	size := int64(binary.LittleEndian.Uint32(end[:]))
	if size > maxUnpacked {
		return 0, fmt.Errorf("%w: it has %d bytes unpacked", ErrUnsupported, size)
	}
	to := &bounded{to: w, left: size}
	if err := unpack(ctx, magic, packed, io.NewSectionReader(packed, 0, bodySize), to); err != nil {
		if to.failed != nil {
			return 0, fmt.Errorf("write kernel: %w", to.failed)
		}
		return 0, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if to.left != 0 {
		return 0, fmt.Errorf("%w: it has %d bytes instead of %d", ErrUnsupported, size-to.left, size)
	}
	return size, nil
}

// unpack decompresses by what magic says; body is packed without the size.
func unpack(ctx context.Context, magic [4]byte, packed, body *io.SectionReader, to *bounded) error {
	switch {
	case bytes.HasPrefix(magic[:], []byte{0x1f, 0x8b}):
		return gunzip(packed, to)
	case bytes.HasPrefix(magic[:], []byte("BZh")):
		_, err := io.Copy(to, bzip2.NewReader(body))
		return err
	case magic == [4]byte{0x02, 0x21, 0x4c, 0x18}:
		in := make([]byte, body.Size())
		if _, err := body.ReadAt(in, 0); err != nil {
			return err
		}
		out, err := unpackLZ4(in[len(magic):], int(to.left))
		if err != nil {
			return err
		}
		_, err = to.Write(out)
		return err
	case magic == [4]byte{0xfd, '7', 'z', 'X'}:
		return pipe(ctx, body, to, "xz", "--decompress", "--stdout", "--single-stream")
	case magic == [4]byte{0x28, 0xb5, 0x2f, 0xfd}:
		return pipe(ctx, body, to, "zstd", "--decompress", "--stdout", "--quiet")
	}
	return fmt.Errorf("its compression % x is unknown", magic)
}

// bounded takes so many bytes and no more.
type bounded struct {
	to     io.Writer
	left   int64
	failed error
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, errors.New("it is longer than it says")
	}
	n, err := b.to.Write(p)
	b.left -= int64(n)
	b.failed = err
	return n, err
}

func gunzip(packed io.Reader, to io.Writer) error {
	r, err := gzip.NewReader(bufio.NewReader(packed))
	if err != nil {
		return err
	}
	r.Multistream(false)
	_, err = io.Copy(to, r) //nolint:gosec // to is bounded
	return err
}

// pipe runs a decompressor that the standard library does not have.
func pipe(ctx context.Context, packed io.Reader, to io.Writer, program string, args ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = packed
	r, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, err = io.Copy(to, r)
	if err != nil {
		cancel() // it has more to say
	}
	return errors.Join(err, cmd.Wait())
}

// check insists on an x86-64 kernel with the entry point that QEMU uses (PVH).
func check(vmlinux io.ReaderAt) error {
	f, err := elf.NewFile(vmlinux)
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
