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

	mu        sync.Mutex
	templates map[templateKey][]byte
}

// New returns the Driver for the layers of a store.
func New(layers *layer.Store) *Driver {
	return &Driver{layers: layers, templates: map[templateKey][]byte{}}
}

// FreeBytes returns what can still be written to the file system of dir.
func FreeBytes(dir string) (int64, error) { return layer.FreeBytes(dir) }

// FromRaw turns a raw image, sparse or not, into a sealed qcow2 layer. Blocks
// of zeros take no space. The caller holds the layer, or forgets it.
func (d *Driver) FromRaw(ctx context.Context, raw string) (layer.Layer, error) {
	return d.convert(ctx, "raw", raw)
}

// Flatten copies everything that can be read through the layer id, which may
// have layers below it, into one new sealed layer without a backing file.
func (d *Driver) Flatten(ctx context.Context, id layer.ID) (layer.Layer, error) {
	return d.convert(ctx, format, d.layers.Path(id))
}

func (d *Driver) convert(ctx context.Context, from, path string) (layer.Layer, error) {
	draft, err := d.layers.Create(layer.KindDisk)
	if err != nil {
		return layer.Layer{}, err
	}
	err = run(ctx, "convert", "-q", "-f", from, "-O", format, "-S", "4k", "--", path, draft.File().Name())
	if err != nil {
		err = d.full(path, fmt.Errorf("convert disk: %w", err))
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
	return d.layers.Full(needed, fmt.Errorf("%w: %w", errNoSpace, err))
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
