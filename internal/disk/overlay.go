package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/pandovm/pando/internal/layer"
)

const (
	maxTemplates = 64
	// maxTemplate bounds an empty overlay: its first-level table has 8 bytes
	// per 512 MiB, so even 16 TiB stay below.
	maxTemplate  = 4 << 20
	overlayMode  = 0o600
	sparseBlock  = 4096
	maxDiskBytes = int64(1) << 50
)

// Overlay makes an empty overlay of sizeBytes at path, which must not exist,
// over the layer backing, which may not exist yet. The first overlay of a size
// costs a run of qemu-img; further ones are copies of it with another name in
// the header, since a fork must not wait for a process to start.
func (d *Driver) Overlay(ctx context.Context, path string, backing layer.ID, sizeBytes int64) error {
	if _, err := backing.Bytes(); err != nil {
		return fmt.Errorf("make overlay: %w", err)
	}
	if sizeBytes <= 0 || sizeBytes > maxDiskBytes || sizeBytes%512 != 0 {
		return fmt.Errorf("make overlay: a disk of %d bytes is not possible", sizeBytes)
	}
	name := d.BackingName(backing)
	template, err := d.template(ctx, sizeBytes)
	if err != nil {
		return fmt.Errorf("make overlay: %w", err)
	}
	overlay, err := withBacking(template, name)
	if err != nil {
		return fmt.Errorf("make overlay: %w", err)
	}
	if err := writeSparse(path, overlay); err != nil {
		return layer.Full(filepath.Dir(path), int64(len(overlay)), fmt.Errorf("make overlay: %w", err))
	}
	return nil
}

// template returns an empty overlay whose backing name only has the right
// length. Two callers may make the same one at once; that does no harm.
func (d *Driver) template(ctx context.Context, sizeBytes int64) ([]byte, error) {
	d.mu.Lock()
	template := d.templates[sizeBytes]
	d.mu.Unlock()
	if template != nil {
		return template, nil
	}
	template, err := makeTemplate(ctx, d.BackingName(layer.NewID()), sizeBytes)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.templates) >= maxTemplates {
		clear(d.templates)
	}
	d.templates[sizeBytes] = template
	return template, nil
}

func makeTemplate(ctx context.Context, placeholder string, sizeBytes int64) (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "pando-overlay-")
	if err != nil {
		return nil, fmt.Errorf("make template: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "overlay")
	// -u: the backing file need not exist, and is not opened.
	err = run(ctx, "create", "-q", "-u", "-f", format, "-F", format, "-b", placeholder, "--", path, strconv.FormatInt(sizeBytes, 10))
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxTemplate {
		return nil, fmt.Errorf("an empty overlay has %d bytes", info.Size())
	}
	template, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	header, err := parseHeader(template)
	if err != nil {
		return nil, err
	}
	if header.BackingFile != placeholder {
		return nil, fmt.Errorf("qemu-img recorded %q as the backing file", header.BackingFile)
	}
	return template, nil
}

// withBacking returns a copy of an overlay with another backing file's name of
// the same length.
func withBacking(template []byte, name string) ([]byte, error) {
	offset, length, err := backingName(template)
	if err != nil {
		return nil, err
	}
	if length != len(name) {
		return nil, fmt.Errorf("backing name %q has not the %d bytes of the template's", name, length)
	}
	overlay := bytes.Clone(template)
	copy(overlay[offset:], name)
	return overlay, nil
}

// writeSparse writes a new file and leaves blocks of zeros as holes.
func writeSparse(path string, content []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, overlayMode)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	zeros := make([]byte, sparseBlock)
	for at := 0; at < len(content); at += sparseBlock {
		block := content[at:min(at+sparseBlock, len(content))]
		if bytes.Equal(block, zeros[:len(block)]) {
			continue
		}
		if _, err := f.WriteAt(block, int64(at)); err != nil {
			return err
		}
	}
	return f.Truncate(int64(len(content)))
}
