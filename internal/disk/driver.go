package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/layer"
)

// MaxDepth is how many layers may lie below an overlay. Beyond it every read of
// an old block looks through too many tables, so the chain is flattened.
const MaxDepth = 8

const (
	format   = "qcow2"
	qemuImg  = "qemu-img"
	toolText = 4 << 10
)

// Driver makes disks over the layers of one store. It is safe for concurrent use.
type Driver struct {
	layers *layer.Store

	mu sync.Mutex
	// templates are empty overlays by their size.
	templates map[int64][]byte
}

// New returns the Driver for the layers of a store.
func New(layers *layer.Store) *Driver {
	return &Driver{layers: layers, templates: map[int64][]byte{}}
}

// FreeBytes returns what can still be written to the file system of dir.
func FreeBytes(dir string) (int64, error) { return layer.FreeBytes(dir) }

// FromRaw turns a raw image, sparse or not, into a sealed qcow2 layer. Blocks
// of zeros take no space. The caller holds the layer, or forgets it.
func (d *Driver) FromRaw(ctx context.Context, raw string) (layer.Layer, error) {
	draft, err := d.layers.Create(layer.KindDisk)
	if err != nil {
		return layer.Layer{}, err
	}
	err = run(ctx, "convert", "-q", "-f", "raw", "-O", format, "-S", "4k", "--", raw, draft.File().Name())
	if err != nil {
		err = d.full(raw, fmt.Errorf("convert disk: %w", err))
		return layer.Layer{}, errors.Join(err, draft.Discard())
	}
	return draft.Seal()
}

// full looks for a full disk behind a failed qemu-img, which reports it in
// words. The allocated size of the source is the best guess of what is needed.
func (d *Driver) full(source string, err error) error {
	if !strings.Contains(err.Error(), "No space left on device") {
		return err
	}
	needed, statErr := allocated(source)
	if statErr != nil {
		return err
	}
	return d.layers.Full(needed, fmt.Errorf("%w: %w", unix.ENOSPC, err))
}

// allocated returns the bytes that a file takes on disk.
func allocated(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", path, err)
	}
	return st.Blocks * 512, nil
}

// run executes qemu-img. Its output is bounded and becomes part of the error.
func run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, qemuImg, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var out bounded
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("qemu-img %s: %w: %s", args[0], err, bytes.TrimSpace(out.text))
	}
	return nil
}

// bounded keeps the first toolText bytes that are written to it.
type bounded struct{ text []byte }

func (b *bounded) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), toolText-len(b.text))]...)
	return len(p), nil
}

// BackingName returns the name under which every overlay records the layer
// below it: a layer in a folder beside the overlay's own. It is the same text
// for an overlay in a VM's folder and for the layer that the overlay becomes,
// so freezing an overlay is a rename. A VM's folder has the layers beside it as
// a link, or as mounts.
func (d *Driver) BackingName(id layer.ID) string {
	return filepath.Join("..", filepath.Base(d.layers.Dir()), string(id))
}
