package compat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pandovm/pando/internal/testlab"
)

// line is what a script says on its standard output.
type line struct {
	// Test is a test that ended, Error why it failed.
	Test, Error string
	// Called is what was called, in the last line.
	Called []string
}

// The whole SDK for VMs. Each script is a group of tests; a script that does
// not come to its end fails, and so does a method that no script called.
func TestSDK(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	dir := scripts(t)
	called := map[string]bool{}
	for _, name := range []string{"vms", "exec", "background", "fs", "uploads", "pty", "snapshots", "debian"} {
		t.Run(name, func(t *testing.T) {
			for _, method := range run(t, l, filepath.Join(dir, name+".mjs")) {
				called[method] = true
			}
		})
	}
	t.Run("every method", func(t *testing.T) {
		methods := run(t, l, filepath.Join(dir, "methods.mjs"))
		if len(methods) < 50 {
			t.Errorf("the client has only %d methods: %q", len(methods), methods)
		}
		missing := slices.DeleteFunc(methods, func(m string) bool { return called[m] })
		if len(missing) > 0 {
			t.Errorf("no test has seen these succeed:\n  %s", strings.Join(missing, "\n  "))
		}
	})
}

// run runs a script, turns its lines into tests, and returns what it called.
func run(t *testing.T, l *testlab.Lab, script string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), node(t), script)
	cmd.Env = append(os.Environ(), "PANDO_URL="+l.URL, "PANDO_API_KEY="+l.Key)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	called := report(t, out)
	if err := cmd.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("%s: %v", filepath.Base(script), err)
	}
	if problems.Len() > 0 {
		t.Errorf("%s complains:\n%s", filepath.Base(script), problems.String())
	}
	if called == nil {
		t.Errorf("%s did not come to its end", filepath.Base(script))
	}
	return called
}

func report(t *testing.T, out io.Reader) []string {
	t.Helper()
	for lines := json.NewDecoder(out); ; {
		var l line
		switch err := lines.Decode(&l); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			t.Error(err)
			return nil
		case l.Called != nil:
			return l.Called
		}
		t.Run(l.Test, func(t *testing.T) {
			if l.Error != "" {
				t.Error(l.Error)
			}
		})
	}
}
