package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/pandovm/pando/images"
	"github.com/pandovm/pando/internal/image"
	"github.com/pandovm/pando/internal/node"
	"github.com/pandovm/pando/internal/qemu"
	"github.com/pandovm/pando/internal/rootfs"
)

// workshop bakes images on a node of its own in the cache.
type workshop struct {
	host  host
	cache string
	log   *slog.Logger
}

// Open implements image.Workshop.
func (w workshop) Open(ctx context.Context) (image.Baker, func() error, error) {
	release, err := waitForLock(ctx, filepath.Join(w.cache, "bake.lock"))
	if err != nil {
		return nil, nil, err
	}
	dir := filepath.Join(w.cache, "bake")
	n, err := w.fresh(ctx, dir)
	if err != nil {
		release()
		return nil, nil, err
	}
	return n, func() error {
		defer release()
		return errors.Join(n.Close(), os.RemoveAll(dir))
	}, nil
}

// fresh opens the work folder and removes what a build that was killed has
// left in it, a running VM included.
func (w workshop) fresh(ctx context.Context, dir string) (*node.Node, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("make work folder: %w", err)
	}
	n, err := w.host.openNode(ctx, dir, 0, w.log)
	if err != nil {
		return nil, err
	}
	ids, err := n.VMs(ctx)
	for _, id := range ids {
		err = errors.Join(err, n.Delete(ctx, id))
	}
	saved, serr := n.Snapshots(ctx)
	err = errors.Join(err, serr)
	for _, id := range saved {
		err = errors.Join(err, n.DeleteSnapshot(ctx, id))
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// imageService opens the cache of base images.
func (h host) imageService(cache string, log *slog.Logger) *image.Service {
	machine := fmt.Sprintf("%d %s %s %s %s %s", node.ManifestFormat, h.qemu.Version, h.qemu.MachineType, h.qemu.CPUModel, h.qemu.Accel, h.qemu.Layout())
	return image.NewService(image.Config{
		Dir: filepath.Join(cache, "images"),
		Roots: rootfs.New(rootfs.Config{
			Cache: filepath.Join(cache, "rootfs"), Recipes: images.FS(), Agent: h.agent, Emulated: h.qemu.Accel == qemu.AccelTCG,
		}),
		Workshop: workshop{host: h, cache: cache, log: log},
		Machine:  machine,
	})
}
