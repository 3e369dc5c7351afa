package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// Workshop lends a baker with a work folder of its own.
type Workshop interface {
	// Open waits until no other process bakes into this cache. The closer gives
	// the place back and removes the work folder.
	Open(ctx context.Context) (b Baker, closer func() error, err error)
}

// Config is what a Service needs.
type Config struct {
	// Dir is the folder that the service owns, CACHE/images. It is created.
	Dir      string
	Roots    RootBuilder
	Workshop Workshop
	// Machine identifies everything else that a saved machine depends on: QEMU,
	// machine type, CPU model, accelerator. Images made for another one do not fit.
	Machine string
}

// Service keeps the built images. It is safe for concurrent use, also by
// several processes on one cache.
type Service struct{ cfg Config }

// NewService returns a Service; it touches nothing yet.
func NewService(c Config) *Service { return &Service{cfg: c} }

// Built is an image in the cache.
type Built struct {
	Entry

	// Dir holds the manifest and the layers.
	Dir string
	// Version is the digest of everything that went into it.
	Version string
}

// Version returns the digest of everything that goes into an image.
func (s *Service) Version(e Entry) (string, error) {
	root, err := s.cfg.Roots.Digest(e.Recipe)
	if err != nil {
		return "", fmt.Errorf("digest recipe %s: %w", e.Recipe, err)
	}
	text, err := json.Marshal([]any{root, s.cfg.Machine, e.Resources, e.Warm})
	if err != nil {
		return "", fmt.Errorf("digest image %s: %w", e.Name, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

// Lookup returns the image if its present version is built.
func (s *Service) Lookup(ref string) (Built, bool, error) {
	e, err := s.find(ref)
	if err != nil {
		return Built{}, false, err
	}
	b := Built{Entry: e}
	if b.Version, err = s.Version(e); err != nil {
		return b, false, err
	}
	b.Dir = filepath.Join(s.folder(e), b.Version)
	_, err = os.Stat(b.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return b, false, nil
	}
	return b, err == nil, err
}

func (s *Service) find(ref string) (Entry, error) {
	e, ok := Find(ref)
	if !ok {
		return e, fault.NotFound("image", ref)
	}
	return e, nil
}

// folder holds the versions of one image.
func (s *Service) folder(e Entry) string {
	return filepath.Join(s.cfg.Dir, strings.ReplaceAll(e.Name, "/", "_"))
}

// Ensure returns the image and builds it first if need be. progress may be nil.
func (s *Service) Ensure(ctx context.Context, ref string, progress Progress) (Built, error) {
	b, ok, err := s.Lookup(ref)
	if err != nil || ok {
		return b, err
	}
	if progress == nil {
		progress = func(string, int64, int64) {}
	}
	if err := s.build(ctx, b, progress); err != nil {
		return b, fmt.Errorf("build image %s: %w", b.Name, err)
	}
	return b, nil
}

// build makes the image and publishes it with one rename.
func (s *Service) build(ctx context.Context, b Built, progress Progress) (err error) {
	progress("wait for other builds", 0, 0)
	baker, closer, err := s.cfg.Workshop.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closer()) }()
	// Another process may have built it while this one waited.
	if _, err := os.Stat(b.Dir); err == nil {
		return nil
	}
	root, err := s.cfg.Roots.Build(ctx, RootOrder{Recipe: b.Recipe, DiskMiB: b.Resources.Storage}, progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Release()) }()
	work, err := s.workFolder(b.Entry)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	err = baker.Bake(ctx, BakeOrder{
		Image: b.Name, Resources: b.Resources, RawDisk: root.RawDisk, Kernel: root.Kernel, Initrd: root.Initrd,
		Append: root.Append, Warm: b.Warm, Dir: work, Step: func(step string) { progress(step, 0, 0) },
	})
	if err != nil {
		return err
	}
	return s.publish(work, b)
}

func (s *Service) workFolder(e Entry) (string, error) {
	if err := os.MkdirAll(s.folder(e), 0o755); err != nil {
		return "", fmt.Errorf("make image folder: %w", err)
	}
	work, err := os.MkdirTemp(s.folder(e), ".new-")
	if err != nil {
		return "", fmt.Errorf("make image folder: %w", err)
	}
	return work, nil
}

// publish makes the new version visible and removes older ones: data folders
// that use them have links of their own.
func (s *Service) publish(work string, b Built) error {
	if err := os.Chmod(work, 0o755); err != nil {
		return fmt.Errorf("publish image: %w", err)
	}
	if err := os.Rename(work, b.Dir); err != nil {
		return fmt.Errorf("publish image: %w", err)
	}
	return s.removeExcept(b.Entry, b.Version)
}

// removeExcept removes the versions of an image but one. Folders of builds that
// were killed go too: the workshop lets only one build run.
func (s *Service) removeExcept(e Entry, version string) error {
	entries, err := os.ReadDir(s.folder(e))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list versions: %w", err)
	}
	var errs []error
	for _, v := range entries {
		if v.Name() != version {
			errs = append(errs, os.RemoveAll(filepath.Join(s.folder(e), v.Name())))
		}
	}
	return errors.Join(errs...)
}

// List returns the whole catalogue.
func (s *Service) List(ctx context.Context) ([]api.Image, error) {
	var all []api.Image
	for _, e := range Catalogue() {
		i, err := s.Show(ctx, e.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// Show returns one image by name or alias.
func (s *Service) Show(_ context.Context, ref string) (api.Image, error) {
	b, ok, err := s.Lookup(ref)
	if err != nil {
		return api.Image{}, err
	}
	i := api.Image{
		Name: b.Name, Aliases: b.Aliases, Default: b.Default, Resources: b.Resources, Built: ok, Version: b.Version,
	}
	if !ok {
		return i, nil
	}
	return i, measure(b.Dir, &i)
}

// measure fills in when an image was built and what it occupies.
func measure(dir string, i *api.Image) error {
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && d.Type().IsRegular() {
			i.Bytes += info.Size()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("measure image: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("measure image: %w", err)
	}
	built := info.ModTime().UTC().Truncate(time.Second)
	i.BuiltAt = &built
	return nil
}

// Build builds an image, or returns it if it is built. progress may be nil.
func (s *Service) Build(ctx context.Context, ref string, progress Progress) (api.Image, error) {
	if _, err := s.Ensure(ctx, ref, progress); err != nil {
		return api.Image{}, err
	}
	return s.Show(ctx, ref)
}

// Remove deletes every version of an image from the cache. VMs and data
// folders that use it are not affected.
func (s *Service) Remove(_ context.Context, ref string) error {
	e, err := s.find(ref)
	if err != nil {
		return err
	}
	if _, err := os.Stat(s.folder(e)); errors.Is(err, fs.ErrNotExist) {
		f := fault.NotFound("image", ref)
		f.Reason, f.Message, f.Remedy = api.ReasonImageNotBuilt, e.Name+" is not built", "build it: pando image build "+e.Name
		return f
	}
	if err := s.removeExcept(e, ""); err != nil {
		return fmt.Errorf("remove image %s: %w", e.Name, err)
	}
	return os.Remove(s.folder(e))
}
