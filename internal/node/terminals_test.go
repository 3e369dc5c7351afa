package node_test

import (
	"testing"

	"github.com/pandovm/pando/internal/link"
	"github.com/pandovm/pando/internal/terminal"
)

// What clients are told is what the guest does; the two share no code.
func TestTerminalLimits(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string][2]int64{
		"columns":    {terminal.MaxSize, link.MaxTerminalCols},
		"rows":       {terminal.MaxSize, link.MaxTerminalRows},
		"sessions":   {terminal.MaxSessions, link.MaxTerminals},
		"viewers":    {terminal.MaxViewers, link.MaxTerminalViewers},
		"kept":       {terminal.KeptSessions, link.KeptTerminals},
		"kept for":   {int64(terminal.KeptFor), int64(link.KeptTerminalFor)},
		"scrollback": {terminal.MaxScrollback, link.MaxScrollback},
		"lines":      {terminal.MaxScrollbackLines, link.MaxScrollbackLines},
		"shared":     {8 * terminal.MaxScrollback, link.SharedScrollback},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: clients are told %d, the guest has %d", name, pair[0], pair[1])
		}
	}
}
