package rootfs

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// format is part of every digest. Raise it when this package changes what it
// makes out of an unchanged recipe.
const format = "2"

// digestSystem identifies the bootstrapped Debian that all recipes build on:
// only what goes into it, so that a new command line or initramfs script does
// not make the packages install again.
func digestSystem(recipes fs.FS) (string, error) {
	parts := []string{format}
	for _, path := range []string{"debian/packages", "debian/customize", "debian/files", "boot/modules"} {
		digest, err := digestTree(recipes, path)
		if err != nil {
			return "", err
		}
		parts = append(parts, digest)
	}
	return digestStrings(parts...), nil
}

// digestTree hashes the paths and contents of dir, or of all files under it.
func digestTree(recipes fs.FS, dir string) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(recipes, dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(recipes, path)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(h, "%d %s %d ", len(path), path, len(data))
		h.Write(data)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read recipe %s: %w", dir, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func digestFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read agent binary: %w", err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read agent binary: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func digestStrings(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d %s ", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// listFile reads a file of one entry per line; "#" starts a comment.
func listFile(recipes fs.FS, path string) ([]string, error) {
	data, err := fs.ReadFile(recipes, path)
	if err != nil {
		return nil, fmt.Errorf("read recipe: %w", err)
	}
	var entries []string
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line != "" {
			entries = append(entries, line)
		}
	}
	return entries, nil
}

// modeOf is the permission of a recipe's file inside the guest. Embedded files
// carry none of their own.
func modeOf(path string, data []byte) int64 {
	switch {
	case bytes.HasPrefix(data, []byte("#!")):
		return 0o755
	case strings.HasPrefix(path, "etc/sudoers.d/"):
		return 0o440
	case path == "etc/shadow":
		return 0o600
	default:
		return 0o644
	}
}
