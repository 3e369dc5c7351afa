package kernel_test

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandovm/pando/internal/kernel"
)

// vmlinux is the smallest file that passes for a kernel: an ELF header, one
// segment with notes, and content that compresses.
func vmlinux(note string) []byte {
	var b bytes.Buffer
	put := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1,
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64,
	}
	copy(header.Ident[:], "\x7fELF\x02\x01\x01")
	put(header)
	notes := noteOf("GNU\x00", 3, "12345") + noteOf(note, 18, "12345678")
	put(elf.Prog64{Type: uint32(elf.PT_NOTE), Off: 120, Filesz: uint64(len(notes))})
	b.WriteString(notes)
	b.WriteString(strings.Repeat("all work and no play makes a dull kernel. ", 5000))
	return b.Bytes()
}

func noteOf(name string, kind uint32, content string) string {
	var b bytes.Buffer
	for _, n := range []uint32{uint32(len(name)), uint32(len(content)), kind} {
		_ = binary.Write(&b, binary.LittleEndian, n)
	}
	pad := func(s string) string { return s + strings.Repeat("\x00", -len(s)&3) }
	b.WriteString(pad(name) + pad(content))
	return b.String()
}

// bzImage puts a payload behind a boot header.
func bzImage(payload []byte) []byte {
	const sectors, gap = 3, 44
	image := make([]byte, (sectors+1)*512+gap)
	image[0x1f1] = sectors
	copy(image[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(image[0x206:], 0x20f)
	binary.LittleEndian.PutUint32(image[0x248:], gap)
	binary.LittleEndian.PutUint32(image[0x24c:], uint32(len(payload)))
	return append(append(image, payload...), "signature"...)
}

// sized appends the unpacked size, as the kernel's build does.
func sized(packed []byte, size int) []byte {
	return binary.LittleEndian.AppendUint32(packed, uint32(size))
}

// filter runs a compressor.
func filter(t testing.TB, content []byte, program string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdin = bytes.NewReader(content)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func gzipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// lz4 packs by hand: literals, then one long overlapping copy.
func lz4(head []byte, repeats int) []byte {
	long := func(n int) []byte { return append(bytes.Repeat([]byte{255}, (n-15)/255), byte((n-15)%255)) }
	block := append([]byte{0xff}, long(len(head))...)
	block = append(block, head...)
	block = append(block, 1, 0) // copy from one byte before
	block = append(block, long(repeats-4)...)
	block = append(block, 0x10, 'z') // the last literal
	out := []byte{0x02, 0x21, 0x4c, 0x18}
	out = binary.LittleEndian.AppendUint32(out, uint32(len(block)))
	return append(out, block...)
}

func emptyFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "vmlinux"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	content := vmlinux("Xen\x00")
	short := content[:400]
	repeated := append(append(bytes.Clone(short), bytes.Repeat(short[len(short)-1:], 1000)...), 'z')
	for name, c := range map[string]struct{ payload, want []byte }{
		"gzip":  {gzipped(t, content), content},
		"lz4":   {sized(lz4(short, 1000), len(repeated)), repeated},
		"xz":    {sized(filter(t, content, "xz", "--check=crc32", "--stdout"), len(content)), content},
		"bzip2": {sized(filter(t, content, "bzip2", "--stdout"), len(content)), content},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := emptyFile(t)
			if err := kernel.Unpack(t.Context(), bytes.NewReader(bzImage(c.payload)), out); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(out.Name()); err != nil || !bytes.Equal(got, c.want) {
				t.Errorf("%d bytes differ from the original %d: %v", len(got), len(c.want), err)
			}
		})
	}
}

func TestWhatCannotBeUnpacked(t *testing.T) {
	t.Parallel()
	content := vmlinux("Xen\x00")
	sound := bzImage(gzipped(t, content))
	alter := func(change func(image []byte)) []byte {
		image := bytes.Clone(sound)
		change(image)
		return image
	}
	for want, image := range map[string][]byte{
		"no bzImage":              []byte("#!/bin/sh"),
		"is too old":              alter(func(i []byte) { i[0x206], i[0x207] = 7, 2 }),
		"outside the file":        alter(func(i []byte) { i[0x24f] = 0xff }),
		"compression 6e 6f 6e 65": bzImage(sized([]byte("none of them"), 12)),
		"bytes unpacked":          bzImage(sized(lz4(content[:100], 100), 1<<30)),
		"instead of":              bzImage(sized(lz4(content[:100], 100), 10_000)),
		"longer than it says":     bzImage(sized(filter(t, content, "xz", "--check=crc32", "--stdout"), len(content)-1)),
		"lz4 data is damaged":     bzImage(sized(lz4(content[:100], 100), 100)),
		"unexpected EOF":          bzImage(sized(gzipped(t, content)[:100], len(content))),
		"bad magic number":        bzImage(gzipped(t, []byte("no ELF file, but long enough for its header, which has 64 bytes"))),
		"no PVH entry point":      bzImage(gzipped(t, vmlinux("Zen\x00"))),
		"exit status":             bzImage(sized(append([]byte{0xfd, '7', 'z', 'X', 'Z', 0}, content[:100]...), len(content))),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			err := kernel.Unpack(t.Context(), bytes.NewReader(image), emptyFile(t))
			if !errors.Is(err, kernel.ErrUnsupported) || !strings.Contains(err.Error(), want) {
				t.Errorf("err = %v, want %q", err, want)
			}
		})
	}
}

func FuzzUnpack(f *testing.F) {
	content := vmlinux("Xen\x00")
	f.Add(gzipped(f, content))
	f.Add(sized(lz4(content[:400], 1000), 1401))
	f.Add(sized(lz4(content[:20], 20), 41))
	f.Add([]byte{0x02, 0x21, 0x4c, 0x18, 1, 0, 0, 0, 0xff, 0, 1, 0, 0})
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > 6 && (payload[0] == 0xfd || payload[0] == 0x28) {
			return // other programs' decoders
		}
		err := kernel.Unpack(t.Context(), bytes.NewReader(bzImage(payload)), emptyFile(t))
		if err != nil && !errors.Is(err, kernel.ErrUnsupported) {
			t.Error(err)
		}
	})
}
