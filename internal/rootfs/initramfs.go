package rootfs

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// cpioWriter writes the "newc" archive that the kernel unpacks as its first
// root. Every header field is 8 hexadecimal digits.
type cpioWriter struct {
	w     io.Writer
	inode int
	err   error
}

const (
	cpioFile    = 0o100000
	cpioDir     = 0o040000
	cpioLink    = 0o120000
	cpioDevice  = 0o020000
	cpioTrailer = "TRAILER!!!"
)

func (c *cpioWriter) add(name string, mode int, data []byte, major, minor int) {
	if c.err != nil {
		return
	}
	c.inode++
	var b bytes.Buffer
	fmt.Fprintf(&b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		c.inode, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0)
	b.WriteString(name)
	b.WriteByte(0)
	pad(&b)
	b.Write(data)
	pad(&b)
	_, c.err = c.w.Write(b.Bytes())
}

func pad(b *bytes.Buffer) {
	for b.Len()%4 != 0 {
		b.WriteByte(0)
	}
}

// writeInitramfs packs busybox, the modules and the init script, uncompressed:
// unpacking is slower under emulation than reading it.
func writeInitramfs(path string, s system, recipes fs.FS) error {
	script, err := fs.ReadFile(recipes, "boot/init")
	if err != nil {
		return fmt.Errorf("read recipe: %w", err)
	}
	busybox, err := os.ReadFile(s.file("busybox"))
	if err != nil {
		return fmt.Errorf("read busybox: %w", err)
	}
	modules, err := filepath.Glob(s.file("modules/*.ko"))
	if err != nil || len(modules) == 0 {
		return fmt.Errorf("find kernel modules in %s: %w", s.dir, fs.ErrNotExist)
	}
	var out bytes.Buffer
	c := &cpioWriter{w: &out}
	for _, dir := range []string{"bin", "dev", "modules", "root"} {
		c.add(dir, cpioDir|0o755, nil, 0, 0)
	}
	c.add("dev/console", cpioDevice|0o600, nil, 5, 1)
	c.add("bin/busybox", cpioFile|0o755, busybox, 0, 0)
	for _, applet := range []string{"sh", "mount", "mkdir", "insmod", "usleep", "switch_root"} {
		c.add("bin/"+applet, cpioLink|0o777, []byte("busybox"), 0, 0)
	}
	c.add("init", cpioFile|0o755, script, 0, 0)
	for _, module := range modules {
		data, err := os.ReadFile(module)
		if err != nil {
			return fmt.Errorf("read kernel module: %w", err)
		}
		c.add("modules/"+filepath.Base(module), cpioFile|0o644, data, 0, 0)
	}
	c.add(cpioTrailer, 0, nil, 0, 0)
	if c.err != nil {
		return fmt.Errorf("pack initramfs: %w", c.err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	return nil
}
