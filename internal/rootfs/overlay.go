package rootfs

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// writeOverlay packs the recipe's files, its customize script and the list of
// boot modules, for mmdebstrap to unpack over the new root.
func writeOverlay(path string, recipes fs.FS) error {
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write overlay: %w", err)
	}
	defer func() { _ = out.Close() }()
	w := tar.NewWriter(out)
	for from, to := range map[string]string{
		"debian/customize": "pando-customize",
		"boot/modules":     "pando-modules",
	} {
		if err := addFile(w, recipes, from, to); err != nil {
			return err
		}
	}
	if err := addTree(w, recipes, "debian/files"); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write overlay: %w", err)
	}
	return out.Close()
}

func addTree(w *tar.Writer, recipes fs.FS, root string) error {
	return fs.WalkDir(recipes, root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		if e.IsDir() {
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755})
		}
		return addFile(w, recipes, path, name)
	})
}

func addFile(w *tar.Writer, recipes fs.FS, from, to string) error {
	data, err := fs.ReadFile(recipes, from)
	if err != nil {
		return fmt.Errorf("read recipe: %w", err)
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: to, Mode: modeOf(to, data), Size: int64(len(data))}
	if err := w.WriteHeader(h); err != nil {
		return fmt.Errorf("write overlay: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write overlay: %w", err)
	}
	return nil
}

// unpackBoot takes what the host needs (kernel, modules, busybox) out of the
// archive that mmdebstrap made of the guest's folder of that name. Only plain
// files directly below it or below modules/ are taken.
func unpackBoot(archive, dir string) error {
	in, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("read boot files: %w", err)
	}
	defer func() { _ = in.Close() }()
	if err := os.MkdirAll(filepath.Join(dir, "modules"), 0o755); err != nil {
		return fmt.Errorf("write boot files: %w", err)
	}
	r := tar.NewReader(in)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read boot files: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		name := filepath.Base(h.Name)
		if filepath.Base(filepath.Dir(h.Name)) == "modules" {
			name = filepath.Join("modules", name)
		}
		if err := writeFrom(filepath.Join(dir, name), r); err != nil {
			return err
		}
	}
}

func writeFrom(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write boot files: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := io.Copy(f, r); err != nil {
		return fmt.Errorf("write boot files: %w", err)
	}
	return f.Close()
}
