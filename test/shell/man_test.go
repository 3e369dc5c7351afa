package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandovm/pando/internal/testlab"
)

// Every page is shown by man without a warning, and the stricter reader finds
// nothing but style to complain about.
func TestManualPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), testlab.Binary(t), "man", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 25 {
		t.Fatalf("%d pages (%v)", len(pages), err)
	}
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".1")
		cmd := exec.CommandContext(t.Context(), "man", "--warnings", "-l", page)
		cmd.Env = append(os.Environ(), "MANWIDTH=80", "LC_ALL=C.UTF-8", "PAGER=cat", "MANPAGER=cat", "MANROFFOPT=-c")
		var text, problems strings.Builder
		cmd.Stdout, cmd.Stderr = &text, &problems
		if err := cmd.Run(); err != nil || problems.Len() > 0 {
			t.Errorf("man of %s: %v: %s", name, err, problems.String())
		}
		for _, want := range []string{"NAME", name, "SYNOPSIS", "DESCRIPTION", "GLOBAL OPTIONS", "--json"} {
			if !strings.Contains(text.String(), want) && (name != "pando" || want != "GLOBAL OPTIONS") {
				t.Errorf("the page of %s does not show %q", name, want)
			}
		}
		if out, err := exec.CommandContext(t.Context(), "mandoc", "-T", "lint", "-W", "warning", page).CombinedOutput(); err != nil {
			t.Errorf("mandoc on %s: %v: %s", name, err, out)
		}
	}
}
