// Package setup connects the parts of the agent: it is the one list of what a
// guest can be asked for. cmd/pando-agent and internal/guest/guesttest import it;
// nothing else may.
package setup

import (
	"time"

	"github.com/pandovm/pando/internal/agent/cgroup"
	"github.com/pandovm/pando/internal/agent/command"
	"github.com/pandovm/pando/internal/agent/files"
	"github.com/pandovm/pando/internal/agent/growth"
	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/agent/terminal"
	"github.com/pandovm/pando/internal/agent/upgrade"
	"github.com/pandovm/pando/internal/link"
)

// Parts is what the services are made of.
type Parts struct {
	Spawner *process.Spawner
	// Accounts are those of the guest.
	Accounts process.Accounts
	// Commands is the folder in which commands' records and output are kept;
	// empty keeps neither on the disk.
	Commands string
	// Growth takes added hardware into use.
	Growth growth.Service
	// Cgroups is where commands live; nil for the agent's own group.
	Cgroups *cgroup.Tree
	// File, Mark and Takeover are what upgrade.Service takes; without a File the
	// agent cannot be replaced.
	File, Mark string
	Takeover   func(patience time.Duration) error
}

// groups gives commands the groups of a tree.
type groups struct{ tree *cgroup.Tree }

// Make implements command.Cgroups.
func (g groups) Make() command.Group {
	if group := g.tree.Take(); group != nil {
		return group
	}
	return nil
}

// Handlers returns the services by the paths that they answer.
func Handlers(p Parts) map[string]http2.Handler {
	terminals := terminal.NewService(p.Spawner, p.Accounts)
	commands := command.New(p.Spawner, p.Accounts, p.Commands)
	if p.Cgroups != nil {
		commands.Cgroups = groups{p.Cgroups}
	}
	handlers := map[string]http2.Handler{
		link.PathExec:      commands.Exec,
		link.PathStart:     commands.Start,
		link.PathOutput:    commands.Output,
		link.PathFeed:      commands.Feed,
		link.PathSignal:    commands.Signal,
		link.PathInfo:      commands.Info,
		link.PathList:      commands.List,
		link.PathForget:    commands.Forget,
		link.PathProcesses: commands.Processes,
		link.PathKill:      commands.Kill,
		link.PathFiles:     files.New(p.Accounts).Serve,
		link.PathGrow:      p.Growth.Grow,

		link.PathTerminalOpen:   terminals.Open,
		link.PathTerminalAttach: terminals.Attach,
		link.PathTerminalList:   terminals.List,
		link.PathTerminalClose:  terminals.Close,
	}
	if p.File != "" {
		agent := &upgrade.Service{File: p.File, Mark: p.Mark, Running: p.Spawner.Running, Takeover: p.Takeover}
		handlers[link.PathUpgrade], handlers[link.PathUpgraded] = agent.Upgrade, agent.Upgraded
	}
	return handlers
}
