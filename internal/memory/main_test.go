package memory_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/pandovm/pando/internal/memory"
)

// tools are what the tests run, made once for all of them.
type tools struct{ victim, library string }

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "pando-memory-")
	if err == nil {
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

func build(dir string) error {
	library, err := memory.InstallLibrary(dir)
	if err != nil {
		return err
	}
	victim := filepath.Join(dir, "victim")

	out, err := exec.Command("gcc", "-O1", "-Wall", "-Wextra", "-o", victim, "testdata/victim.c").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build victim: %w: %s", err, out)
	}
	for name, value := range map[string]string{"TEST_LIBRARY": library, "TEST_VICTIM": victim} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

func testTools() tools {
	return tools{victim: os.Getenv("TEST_VICTIM"), library: os.Getenv("TEST_LIBRARY")}
}
