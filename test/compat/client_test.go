package compat

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// client is the folder that the reference client is installed in: the pinned
// version, or what PANDO_COMPAT names.
func client(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("PANDO_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(user, "pando")
	}
	dir := filepath.Join(cache, "compat", cmp.Or(os.Getenv("PANDO_COMPAT"), "pinned"))
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "freestyle", "package.json")); err != nil {
		t.Fatalf("the reference client is not installed; run make test-tools: %v", err)
	}
	return dir
}

// node returns the path of Node.js.
func node(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("Node.js is missing; run make setup: %v", err)
	}
	return path
}

// scripts is a folder with the scripts of this package in which Node finds the
// client: it looks for packages in the folders above a script.
func scripts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("scripts")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(client(t), "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}
