package compat

import (
	"testing"

	"github.com/pandovm/pando/internal/testlab"
)

// atTerminal starts the command line at a terminal, as a person does.
func (f *freestyle) atTerminal(t *testing.T, args ...string) *testlab.Terminal {
	t.Helper()
	p := testlab.NewTerminal(t)
	p.Run(f.command(t.Context(), args...))
	f.used.add(args)
	return p
}
