package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	pando "github.com/pandovm/pando/sdk"
)

// tree copies by way of an archive: a folder, or a single file whose times and
// owner matter. A single file's archive is unpacked into the folder above it.
func (t *transfer) tree(ctx context.Context, single bool) error {
	archive, err := t.pack(ctx, single)
	if err != nil {
		return err
	}
	counted := struct {
		io.Reader
		io.Closer
	}{&counter{archive, t}, archive}
	t.size = 0 // that of the archive is known at its end
	err = t.unpack(ctx, counted, single)
	return errors.Join(err, archive.Close())
}

// pack returns the archive of the source. That of a single file holds it under
// the destination's name.
func (t *transfer) pack(ctx context.Context, single bool) (io.ReadCloser, error) {
	if t.src.vm != "" {
		archive, err := t.src.files.Archive(ctx, t.src.path)
		if err != nil || !single {
			return archive, err
		}
		return rename(archive, t.dst.base()), nil
	}
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(packLocal(w, t.src.path, t.dst.base())) }() // It never fails.
	return r, nil
}

// rename gives the one entry of an archive another name.
func rename(archive io.ReadCloser, name string) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		err := renameInto(w, archive, name)
		_ = w.CloseWithError(errors.Join(err, archive.Close())) // It never fails.
	}()
	return r
}

func renameInto(w io.Writer, archive io.Reader, name string) error {
	in, out := tar.NewReader(archive), tar.NewWriter(w)
	h, err := in.Next()
	if err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	h.Name = name
	if err := out.WriteHeader(h); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	if _, err := io.Copy(out, in); err != nil { //nolint:gosec // the user asked for the whole file
		return fmt.Errorf("copy archive: %w", err)
	}
	return out.Close()
}

// packLocal writes a file or a folder of this host as an archive. The source itself
// may be a symbolic link; those within are kept.
func packLocal(w io.Writer, root, single string) error {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	out := tar.NewWriter(w)
	err = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if name == "." && !info.IsDir() {
			name = single
		}
		return packOne(out, p, filepath.ToSlash(name), info)
	})
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	return out.Close()
}

func packOne(out *tar.Writer, p, name string, info fs.FileInfo) error {
	target := ""
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		var err error
		if target, err = os.Readlink(p); err != nil {
			return err
		}
	case !mode.IsRegular() && !mode.IsDir():
		return nil // sockets, FIFOs and devices have no content
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Format = name, tar.FormatPAX
	h.AccessTime, h.ChangeTime = h.ModTime, h.ModTime
	if info.IsDir() {
		h.Name += "/"
	}
	if err := out.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it is only read
	// No more than the head says: a log may grow meanwhile.
	_, err = io.CopyN(out, f, h.Size)
	return err
}

func (t *transfer) unpack(ctx context.Context, archive io.Reader, single bool) error {
	where := t.dst.path
	if t.dst.vm != "" {
		if single {
			where = path.Dir(where)
		}
		return t.dst.files.Extract(ctx, where, archive, pando.ExtractOptions{KeepOwner: t.preserve})
	}
	if single {
		where = filepath.Dir(where)
	}
	return unpackLocal(where, archive, t.preserve && os.Geteuid() == 0)
}

// unpackLocal unpacks what a VM sent, which is not trusted: nothing of it leaves
// the folder.
func unpackLocal(dir string, archive io.Reader, owners bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer func() { _ = root.Close() }() // nothing depends on it
	u := &unpacker{root: root, owners: owners}
	in := tar.NewReader(archive)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return u.finish()
		}
		if err == nil {
			err = u.entry(h, in)
		}
		if err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
	}
}

type unpacker struct {
	root   *os.Root
	owners bool
	// folders get their permissions and times when all is in them.
	folders []*tar.Header
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	name := path.Clean(h.Name)
	if name == "." {
		return nil
	}
	mode := h.FileInfo().Mode()
	switch h.Typeflag {
	case tar.TypeDir:
		u.folders = append(u.folders, h)
		return u.root.MkdirAll(name, 0o700)
	case tar.TypeSymlink:
		_ = u.root.Remove(name) // if it fails, the next call does
		return u.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		_ = u.root.Remove(name) // as above
		return u.root.Link(path.Clean(h.Linkname), name)
	case tar.TypeReg:
		_ = u.root.Remove(name) // a link that is there must not be followed
		f, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		return u.settle(name, mode, h)
	}
	return nil
}

func (u *unpacker) settle(name string, mode fs.FileMode, h *tar.Header) error {
	if u.owners {
		if err := u.root.Lchown(name, h.Uid, h.Gid); err != nil {
			return err
		}
	}
	if !u.owners {
		mode = mode.Perm() // who does not keep owners must not keep what runs as them
	}
	return errors.Join(u.root.Chmod(name, mode), u.root.Chtimes(name, h.ModTime, h.ModTime))
}

func (u *unpacker) finish() error {
	for _, h := range slices.Backward(u.folders) {
		if err := u.settle(path.Clean(h.Name), h.FileInfo().Mode(), h); err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
	}
	return nil
}
