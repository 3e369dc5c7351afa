package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/cli"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/doctor"
	"github.com/pandovm/pando/internal/image"
	"github.com/pandovm/pando/internal/jail"
	"github.com/pandovm/pando/internal/vm"
)

// Commands returns what the command line needs.
func Commands(version string) cli.Deps {
	c := &commands{version: version}
	return cli.Deps{Version: version, Images: c, Doctor: c, Serve: c.serve}
}

// commands carries out the commands that work on this host rather than through
// the API.
type commands struct{ version string }

// cacheDir is PANDO_CACHE, else pando in the user's cache folder.
func cacheDir() (string, error) {
	if dir := os.Getenv("PANDO_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder; set PANDO_CACHE: %w", err)
	}
	return filepath.Join(dir, "pando"), nil
}

func (c *commands) serve(ctx context.Context, o cli.ServeOptions) error {
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	data, err := filepath.Abs(o.Data)
	if err != nil {
		return fmt.Errorf("resolve data folder: %w", err)
	}
	return Serve(ctx, Options{
		Listen: o.Listen, Data: data, Cache: cache, APIKey: os.Getenv("PANDO_API_KEY"),
		StopVMs: o.StopVMs, Spares: o.Spares, Version: c.version, Log: newLog(o.JSONLog),
	})
}

func newLog(asJSON bool) *slog.Logger {
	if asJSON {
		return slog.New(slog.NewJSONHandler(os.Stderr, nil))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil))
}

// images opens the image cache of this host.
func (c *commands) images(ctx context.Context) (host, *image.Service, error) {
	cache, err := cacheDir()
	if err != nil {
		return host{}, nil, err
	}
	h, err := openHost(ctx, cache)
	if err != nil {
		return host{}, nil, err
	}
	return h, h.imageService(cache, newLog(false)), nil
}

// List implements cli.Images.
func (c *commands) List(ctx context.Context) ([]api.Image, error) {
	_, s, err := c.images(ctx)
	if err != nil {
		return nil, err
	}
	return s.List(ctx)
}

// Show implements cli.Images.
func (c *commands) Show(ctx context.Context, name string) (api.Image, error) {
	_, s, err := c.images(ctx)
	if err != nil {
		return api.Image{}, err
	}
	return s.Show(ctx, name)
}

// Build implements cli.Images.
func (c *commands) Build(ctx context.Context, name string, progress func(string, int64, int64)) (api.Image, error) {
	_, s, err := c.images(ctx)
	if err != nil {
		return api.Image{}, err
	}
	return s.Build(ctx, name, progress)
}

// Remove implements cli.Images.
func (c *commands) Remove(ctx context.Context, name string) error {
	_, s, err := c.images(ctx)
	if err != nil {
		return err
	}
	return s.Remove(ctx, name)
}

// Examine implements cli.Doctor.
func (c *commands) Examine(ctx context.Context, o cli.DoctorOptions, report func(cli.Check)) error {
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	groups, err := jail.DetectCgroups()
	if err != nil {
		return fmt.Errorf("look at cgroups: %w", err)
	}
	options := doctor.Options{
		DataDir: cli.DefaultDataDir(os.Getenv, os.Geteuid()), CacheDir: cache, Cgroups: groups,
		Seen: func(s doctor.Check) {
			report(cli.Check{Name: s.Name, Status: cli.CheckStatus(s.Result), Detail: s.Seen, Fix: s.Fix})
		},
	}
	if !o.Quick {
		options.Boot = c.prove
	}
	doctor.Examine(ctx, options)
	return nil
}

// prove makes a VM from the smallest image, in a data folder of its own, and
// runs a command in it.
func (c *commands) prove(ctx context.Context) (seen string, err error) {
	h, images, err := c.images(ctx)
	if err != nil {
		return "", err
	}
	b, err := images.Ensure(ctx, "pando/busybox", nil)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "pando-doctor-")
	if err != nil {
		return "", fmt.Errorf("make data folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", fmt.Errorf("make data folder: %w", err)
	}
	n, err := h.openNode(ctx, dir, 0, newLog(false))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	id := "vm-" + uuid.NewString()
	if err := n.Import(ctx, b.Dir, "sh-doctor"); err != nil {
		return "", err
	}
	start := time.Now()
	if _, err := n.Restore(ctx, vm.Restore{VMID: id, Generation: 1, SnapshotID: "sh-doctor", Hostname: "doctor"}); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, n.Delete(context.WithoutCancel(ctx), id)) }()
	r, err := n.Exec(ctx, id, command.Order{Command: "uname -sr", Timeout: time.Minute, MaxOutput: 1 << 10})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("a guest with %.60q ran a command %s after its creation", r.Stdout, time.Since(start).Round(time.Millisecond)), nil
}
