package file

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// Archive writes the tree at a path to w as a tar stream and returns how many
// sockets, FIFOs and devices it left out. Names are relative to the path; the
// entry of a single file has the file's own name. Owners, times, symbolic and hard
// links are kept; a file that becomes shorter meanwhile is filled up with zeros.
func (s *Service) Archive(ctx context.Context, ref, p string, w io.Writer) (skipped int64, err error) {
	if p, err = cleanPath("path", p); err != nil {
		return 0, err
	}
	err = s.use(ctx, ref, func(id string) error {
		t := tar.NewWriter(w)
		skipped, err = s.node.FileArchive(ctx, id, p, func(i Info, content io.Reader) error {
			return pack(t, path.Base(p), i, content)
		})
		if err != nil {
			return err
		}
		if err := t.Close(); err != nil {
			return fmt.Errorf("end archive: %w", err)
		}
		return nil
	})
	return skipped, err
}

// pack writes one entry; own is the name of the tree's root.
func pack(t *tar.Writer, own string, i Info, content io.Reader) error {
	h := &tar.Header{
		Name: i.Name, Mode: int64(i.Mode), Uid: i.UID, Gid: i.GID, Uname: i.Owner, Gname: i.Group, ModTime: i.Modified,
		Format: tar.FormatPAX,
	}
	switch {
	case i.Kind == api.FileKindDirectory:
		h.Typeflag, h.Name = tar.TypeDir, "./"
		if i.Name != "" {
			h.Name = i.Name + "/"
		}
	case i.Name == "":
		h.Name = own
	}
	switch {
	case i.Kind == api.FileKindSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, i.Target
	case i.LinkTo != "":
		h.Typeflag, h.Linkname = tar.TypeLink, i.LinkTo
	case i.Kind == api.FileKindFile:
		h.Typeflag, h.Size = tar.TypeReg, i.Size
	}
	if err := t.WriteHeader(h); err != nil {
		return fmt.Errorf("pack %q: %w", i.Name, err)
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	if _, err := io.Copy(t, content); err != nil {
		return fmt.Errorf("pack %q: %w", i.Name, err)
	}
	return nil
}

// Extract makes the files of a tar stream below a folder. It stops at the first
// entry that it cannot make; what was made before stays.
func (s *Service) Extract(ctx context.Context, ref string, e Extract, archive io.Reader) (err error) {
	if e.Path, err = cleanPath("path", e.Path); err != nil {
		return err
	}
	if err := checkOwners(e.Owner, e.Group); err != nil {
		return err
	}
	return s.use(ctx, ref, func(id string) error {
		t := tar.NewReader(archive)
		return s.node.FileExtract(ctx, id, e, func() (Info, io.Reader, error) { return unpack(t) })
	})
}

// unpack returns the next entry.
func unpack(t *tar.Reader) (Info, io.Reader, error) {
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return Info{}, nil, io.EOF
		}
		if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
			return Info{}, nil, badArchive("is malformed, or broken off").With(err)
		}
		if err != nil {
			return Info{}, nil, err
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		i, err := entryOf(h)
		return i, &archiveContent{t}, err
	}
}

// archiveContent tells a broken archive from other failures.
type archiveContent struct{ t *tar.Reader }

// Read implements io.Reader.
func (a *archiveContent) Read(p []byte) (int, error) {
	n, err := a.t.Read(p)
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = badArchive("is broken off").With(err)
	}
	return n, err
}

func entryOf(h *tar.Header) (Info, error) {
	name, err := entryName(h.Name)
	if err != nil {
		return Info{}, err
	}
	i := Info{Name: name, Mode: uint32(h.Mode) & 0o7777, UID: h.Uid, GID: h.Gid, Modified: h.ModTime, Size: h.Size}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		i.Kind = api.FileKindFile
	case tar.TypeDir:
		i.Kind, i.Size = api.FileKindDirectory, 0
	case tar.TypeSymlink:
		i.Kind, i.Target, i.Size = api.FileKindSymlink, h.Linkname, 0
	case tar.TypeLink:
		i.Kind, i.Size = api.FileKindFile, 0
		if i.LinkTo, err = entryName(h.Linkname); err == nil && i.LinkTo == "" {
			err = badArchive("has a hard link to nothing: %.100q", h.Name)
		}
	default:
		f := badArchive("has the entry %.100q, which is no file, folder or link", h.Name)
		f.Reason = api.ReasonNotAFile
		return Info{}, f
	}
	switch {
	case err != nil:
		return Info{}, err
	case name == "" && i.Kind != api.FileKindDirectory:
		return Info{}, badArchive("has an entry without a name")
	case i.Size < 0 || i.Size > MaxFile:
		return Info{}, tooLarge("the archive's file "+fmt.Sprintf("%.100q", name), MaxFile)
	case h.Uid < 0 || h.Gid < 0:
		return Info{}, badArchive("has an impossible owner for %.100q", h.Name)
	}
	return i, nil
}

// entryName returns the name of an entry relative to the folder, empty for the
// folder itself. Names that would leave it are refused, not bent.
func entryName(name string) (string, error) {
	if strings.HasPrefix(name, "/") || strings.IndexByte(name, 0) >= 0 || len(name) > MaxPath {
		return "", badArchive("has the name %.100q, which is not relative", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", badArchive("has the name %.100q, which leads out of the folder", name)
		}
	}
	clean := path.Clean(name)
	if clean == "." {
		return "", nil
	}
	return clean, nil
}

func badArchive(format string, args ...any) *fault.Error {
	f := fault.BadField("body", "the archive "+format, args...).Hint("send a tar stream of regular files, folders and links with relative names")
	f.Reason = api.ReasonBadArchive
	return f
}
