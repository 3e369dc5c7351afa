package memory

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the library
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The names that cowram.h knows.
const (
	envPreload = "LD_PRELOAD"
	envRAM     = "PANDO_RAM"
	envAdded   = "PANDO_RAM_ADDED"
	envSocket  = "PANDO_MEMORY_SOCKET"
)

//go:embed cowram.so
var library []byte

// InstallLibrary writes the library for QEMU into the folder dir, which it
// makes, and returns its path. The name has the content's checksum in it, so
// VMs that run with an older library keep theirs. Safe for concurrent use.
func InstallLibrary(dir string) (string, error) {
	sum := sha256.Sum256(library)
	path := filepath.Join(dir, "cowram-"+hex.EncodeToString(sum[:8])+".so")
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, library) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("install memory library: %w", err)
	}
	if err := writeLibrary(dir, path); err != nil {
		return "", fmt.Errorf("install memory library: %w", err)
	}
	return path, nil
}

// writeLibrary goes through a temporary name: a running QEMU may have path
// mapped, and must not see it change.
func writeLibrary(dir, path string) error {
	f, err := os.CreateTemp(dir, ".cowram-*")
	if err != nil {
		return err
	}
	_, err = f.Write(library)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// LibraryEnv returns what QEMU's environment needs: the library, the files that
// the memory backends of the RAM and of memory that is added to it name, and
// where the control socket shall be. The path of the socket may have 107 bytes.
func LibraryEnv(libPath, ramPath, addedPath, ctlPath string) []string {
	return []string{envPreload + "=" + libPath, envRAM + "=" + ramPath, envAdded + "=" + addedPath, envSocket + "=" + ctlPath}
}
