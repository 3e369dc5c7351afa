package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

// endpoint is one side of a copy: a path of this host, or of a VM.
type endpoint struct {
	// vm is empty for this host.
	vm, path string
	files    *pando.Files
}

// parseEndpoint takes VM:PATH as a path in a VM, and everything with a slash
// before the first colon, or without a colon, as one of this host.
func parseEndpoint(arg string, c *pando.Client) (endpoint, error) {
	vm, p, ok := strings.Cut(arg, ":")
	if !ok || vm == "" || strings.Contains(vm, "/") {
		return endpoint{path: arg}, nil
	}
	if !strings.HasPrefix(p, "/") {
		return endpoint{}, &usageError{message: fmt.Sprintf("%s: want an absolute path in the VM", arg), fix: "write " + vm + ":/" + p + ", or ./" + arg + " for a file of this host"}
	}
	return endpoint{vm: vm, path: path.Clean(p), files: c.VMs.Files(vm)}, nil
}

func (e endpoint) String() string {
	if e.vm == "" {
		return e.path
	}
	return e.vm + ":" + e.path
}

func (e endpoint) base() string {
	if e.vm == "" {
		return filepath.Base(e.path)
	}
	return path.Base(e.path)
}

func (e endpoint) join(name string) endpoint {
	if e.vm == "" {
		e.path = filepath.Join(e.path, name)
	} else {
		e.path = path.Join(e.path, name)
	}
	return e
}

// look returns the kind of what a path leads to, the permissions and the size; the
// kind is empty if nothing is there.
func (e endpoint) look(ctx context.Context) (kind api.FileKind, mode fs.FileMode, size int64, err error) {
	if e.vm == "" {
		st, err := os.Stat(e.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "", 0, 0, nil
		case err != nil:
			return "", 0, 0, fmt.Errorf("look at %s: %w", e, err)
		case st.IsDir():
			return api.FileKindDirectory, st.Mode(), 0, nil
		case !st.Mode().IsRegular():
			return api.FileKindDevice, st.Mode(), 0, nil
		}
		return api.FileKindFile, st.Mode(), st.Size(), nil
	}
	st, err := e.files.Stat(ctx, e.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, 0, nil
	}
	if err != nil {
		return "", 0, 0, err
	}
	if st.IsSymlink {
		return st.TargetKind, 0, -1, nil
	}
	return st.Kind, pando.FileMode(st.Kind, st.Permissions), st.Size, nil
}

// copied is what a copy has done.
type copied struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	// Bytes is the content that went across, of a tree with its archive's heads.
	Bytes int64 `json:"bytes"`
}

func (a *app) vmCp() *cobra.Command {
	var preserve bool
	cmd := &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy files and folders in and out of VMs",
		Long: `Copy a file or a folder between this host and a VM, or between VMs. A path in a
VM is written VM:/PATH.

If DST is a folder that exists, SRC is put into it; else DST is its new name.
Folders come with all that is in them, with permissions, times and symbolic
links, but without sockets, FIFOs and devices. What arrives in a VM belongs to
the account that commands run as; -p keeps owners by number.`,
		Example: `  pando vm cp ./site web:/srv
  pando vm cp web:/var/log/app.log .
  pando vm cp web:/srv/data worker:/srv/data`,
		Args: wantArgs(2, 2, "SRC DST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runCp(cmd.Context(), args[0], args[1], preserve)
		},
	}
	cmd.Flags().BoolVarP(&preserve, "preserve", "p", false, "keep times and, by number, owners")
	return cmd
}

func (a *app) runCp(ctx context.Context, source, destination string, preserve bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	src, err := parseEndpoint(source, c)
	if err != nil {
		return err
	}
	dst, err := parseEndpoint(destination, c)
	if err != nil {
		return err
	}
	if src.vm == "" && dst.vm == "" {
		return &usageError{message: "neither path is in a VM", fix: "write VM:/PATH for one of them"}
	}
	kind, mode, size, err := src.look(ctx)
	switch {
	case err != nil:
		return err
	case kind == "":
		return &api.Error{Code: api.CodeNotFound, Message: "nothing is at " + src.String(), Remedy: "check the path"}
	case kind != api.FileKindFile && kind != api.FileKindDirectory:
		return &api.Error{Code: api.CodeBadRequest, Message: src.String() + " is neither a file nor a folder", Remedy: "copy a file or a folder"}
	}
	if dst, err = place(ctx, src, dst, kind); err != nil {
		return err
	}
	t := &transfer{a: a, task: a.begin("copying " + src.String() + " to " + dst.String()), src: src, dst: dst, mode: mode, size: size, preserve: preserve}
	err = t.run(ctx, kind)
	t.task.end()
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(copied{src.String(), dst.String(), t.done})
	}
	return nil
}

// place applies scp's rule for the destination.
func place(ctx context.Context, src, dst endpoint, kind api.FileKind) (endpoint, error) {
	there, _, _, err := dst.look(ctx)
	switch {
	case err != nil:
		return dst, err
	case there == api.FileKindDirectory:
		return dst.join(src.base()), nil
	case there != "" && kind == api.FileKindDirectory:
		return dst, &api.Error{Code: api.CodeConflict, Message: dst.String() + " is no folder, and " + src.String() + " is one", Remedy: "choose another destination"}
	}
	return dst, nil
}

// transfer is one copy under way.
type transfer struct {
	a        *app
	task     *task
	src, dst endpoint
	mode     fs.FileMode
	// size is that of a file, -1 if nobody knows.
	size     int64
	preserve bool
	done     int64
}

func (t *transfer) run(ctx context.Context, kind api.FileKind) error {
	switch {
	case kind == api.FileKindDirectory || t.preserve:
		return t.tree(ctx, kind != api.FileKindDirectory)
	case t.src.vm == "":
		return t.upload(ctx)
	case t.dst.vm == "":
		return t.download(ctx)
	}
	return t.between(ctx)
}

// progress says that n bytes more have gone across.
func (t *transfer) progress(n int64) {
	t.done += n
	t.task.step("copying "+t.src.String()+" to "+t.dst.String(), t.done, max(0, t.size))
}

// counter reports what is read through it.
type counter struct {
	r io.Reader
	t *transfer
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.t.progress(int64(n))
	return n, err
}

func (t *transfer) upload(ctx context.Context) error {
	f, err := os.Open(t.src.path)
	if err != nil {
		return fmt.Errorf("open %s: %w", t.src, err)
	}
	defer func() { _ = f.Close() }() // it is only read
	o := pando.FileOptions{Mode: t.mode.Perm()}
	if t.size <= pando.UploadChunk/2 {
		return t.dst.files.Write(ctx, t.dst.path, &counter{f, t}, t.size, o)
	}
	return t.dst.files.Upload(ctx, t.dst.path, f, t.size, o, func(n int64) { t.progress(n - t.done) })
}

func (t *transfer) download(ctx context.Context) error {
	r, err := t.src.files.Open(ctx, t.src.path)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it is read to its end, or failed
	t.size = r.Size()
	return writeLocal(t.dst.path, &counter{r, t}, t.mode.Perm())
}

// writeLocal replaces a file of this host, at once.
func writeLocal(name string, content io.Reader, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".pando-")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = io.Copy(f, content)
	if mode == 0 {
		mode = 0o644
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

func (t *transfer) between(ctx context.Context) error {
	if t.src.vm == t.dst.vm {
		return t.src.files.Copy(ctx, t.src.path, t.dst.path, true)
	}
	r, err := t.src.files.Open(ctx, t.src.path)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it is read to its end, or failed
	t.size = r.Size()
	return t.dst.files.Write(ctx, t.dst.path, &counter{r, t}, r.Size(), pando.FileOptions{Mode: t.mode.Perm()})
}
