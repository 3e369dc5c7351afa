package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// Service holds the use cases. It is safe for concurrent use.
type Service struct {
	vms  VMs
	node Node
	sums sums
}

// NewService returns a service for the VMs of that node.
func NewService(vms VMs, node Node) *Service {
	return &Service{vms: vms, node: node, sums: sums{known: map[sumKey]*sum{}}}
}

// use wakes the VM and calls f with its id.
func (s *Service) use(ctx context.Context, ref string, f func(id string) error) error {
	v, err := s.vms.Awake(ctx, ref)
	if err != nil {
		return err
	}
	defer s.vms.Busy(v.ID)()
	return f(v.ID)
}

// Stat describes what is at a path itself.
func (s *Service) Stat(ctx context.Context, ref, path string) (info Info, err error) {
	if path, err = cleanPath("path", path); err != nil {
		return Info{}, err
	}
	err = s.use(ctx, ref, func(id string) error {
		info, err = s.node.FileStat(ctx, id, path)
		return err
	})
	return info, err
}

// Exists tells whether something is at a path.
func (s *Service) Exists(ctx context.Context, ref, path string) (bool, error) {
	_, err := s.Stat(ctx, ref, path)
	if fault.HasReason(err, api.ReasonFileNotFound) || fault.HasReason(err, api.ReasonNotADirectory) {
		return false, nil
	}
	return err == nil, err
}

// List returns the entries of a folder, sorted by name; at most MaxListed.
func (s *Service) List(ctx context.Context, ref string, l List) ([]Info, error) {
	var entries []Info
	err := s.Each(ctx, ref, l, func(i Info) error {
		if len(entries) >= MaxListed {
			return fault.BadField("path", "has more than %d entries", MaxListed).
				Hint("list fewer levels with depth, or take the entries one by one with format=ndjson")
		}
		entries = append(entries, i)
		return nil
	})
	slices.SortFunc(entries, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return entries, err
}

// Each calls f for the entries of a folder as they come.
func (s *Service) Each(ctx context.Context, ref string, l List, f func(Info) error) (err error) {
	if l.Path, err = cleanPath("path", l.Path); err != nil {
		return err
	}
	return s.use(ctx, ref, func(id string) error { return s.node.FileList(ctx, id, l, f) })
}

// Change carries out an order without content.
func (s *Service) Change(ctx context.Context, ref string, c Change) (err error) {
	field := "path"
	if c.Kind == Copy || c.Kind == Move {
		field = "from"
		if c.To, err = cleanPath("to", c.To); err != nil {
			return err
		}
	}
	if c.Path, err = cleanPath(field, c.Path); err != nil {
		return err
	}
	if err := checkMode(c.Mode); err != nil {
		return err
	}
	if err := checkOwners(c.Owner, c.Group); err != nil {
		return err
	}
	switch {
	case c.Kind == Chmod && c.Mode == nil:
		return fault.BadField("mode", "is missing").Hint(`send a number such as 493, or octal digits such as "0755"`)
	case c.Kind == Chown && c.Owner == "" && c.Group == "":
		return fault.BadField("owner", "is missing, and so is group").Hint("send one of them")
	case c.Path == "/" && (c.Kind == Remove || c.Kind == Move):
		return fault.BadField(field, "is the root folder").Hint("name something in it")
	}
	return s.use(ctx, ref, func(id string) error { return s.node.FileChange(ctx, id, c) })
}

// Read opens a file's content. The caller closes it.
func (s *Service) Read(ctx context.Context, ref, path string, r Range) (Content, error) {
	path, err := cleanPath("path", path)
	if err != nil {
		return nil, err
	}
	v, err := s.vms.Awake(ctx, ref)
	if err != nil {
		return nil, err
	}
	release := s.vms.Busy(v.ID)
	c, err := s.node.FileRead(ctx, v.ID, path, r)
	if err != nil {
		release()
		return nil, err
	}
	return &busyContent{Content: c, release: release}, nil
}

// busyContent keeps the VM in use until it is closed.
type busyContent struct {
	Content
	release func()
}

func (c *busyContent) Close() error {
	defer c.release()
	return c.Content.Close()
}

// Write replaces a file by the content, at once or not at all, after checking
// its length and checksum if they are known.
func (s *Service) Write(ctx context.Context, ref string, w Write, content io.Reader) error {
	w, err := checkWrite(w)
	if err != nil {
		return err
	}
	if w.Size > MaxFile {
		return tooLarge("the file", MaxFile)
	}
	checked := &checkedReader{r: content, left: MaxFile, over: func() error { return tooLarge("the file", MaxFile) }}
	if w.SHA256 != "" {
		checked.sum, checked.want = sha256.New(), w.SHA256
	}
	return s.use(ctx, ref, func(id string) error { return s.node.FileWrite(ctx, id, w, checked) })
}

// checkedReader fails where the content is longer than allowed, and at its end if
// the checksum is wrong: an error takes the whole order back.
type checkedReader struct {
	r    io.Reader
	left int64
	over func() error
	sum  hash.Hash
	want string
	// n counts what was read.
	n int64
}

// Read implements io.Reader.
func (c *checkedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.left -= int64(n); c.left < 0 {
		return 0, c.over()
	}
	if c.sum == nil {
		return n, err
	}
	_, _ = c.sum.Write(p[:n]) // It never fails.
	if errors.Is(err, io.EOF) && c.want != "" && hex.EncodeToString(c.sum.Sum(nil)) != c.want {
		return 0, checksumMismatch()
	}
	return n, err
}

// Watch calls each for what happens to a path and, if asked to, below it, until
// each fails or ctx ends.
func (s *Service) Watch(ctx context.Context, ref, path string, recursive bool, each func(Event) error) error {
	path, err := cleanPath("path", path)
	if err != nil {
		return err
	}
	return s.use(ctx, ref, func(id string) error { return s.node.FileWatch(ctx, id, path, recursive, each) })
}
