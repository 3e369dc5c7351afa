// Package setup connects the parts of the agent: it is the one list of what a
// guest can be asked for. cmd/pando-agent and internal/guest/guesttest import it;
// nothing else may.
package setup

import (
	"github.com/pandovm/pando/internal/agent/command"
	"github.com/pandovm/pando/internal/agent/files"
	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/link"
)

// Parts is what the services are made of.
type Parts struct {
	Spawner *process.Spawner
	// Accounts are those of the guest.
	Accounts process.Accounts
}

// Handlers returns the services by the paths that they answer.
func Handlers(p Parts) map[string]http2.Handler {
	commands := &command.Service{Spawner: p.Spawner, Accounts: p.Accounts}
	return map[string]http2.Handler{
		link.PathExec:  commands.Exec,
		link.PathFiles: files.New(p.Accounts).Serve,
	}
}
