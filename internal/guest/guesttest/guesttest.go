// Package guesttest gives tests a guest without a VM: the real agent behind a
// socket that behaves like the agent socket of QEMU, on a machine whose clock,
// identity and power are recorded instead of changed. Commands are real: they
// run on the machine of the test, as whatever user it runs as.
//
// Tests of any package may import it; nothing else may.
package guesttest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/pandovm/pando/internal/agent"
	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/agent/setup"
	"github.com/pandovm/pando/internal/link"
)

// Guest is an agent that serves until the test ends.
type Guest struct {
	// Socket is the path to dial.
	Socket string
	// System records what the agent was ordered to change.
	System *System
	// Port is the agent's port, for tests of the link itself.
	Port *Port

	stop func()
}

// Stop ends the agent and returns when it has ended. Commands go on.
func (g *Guest) Stop() { g.stop() }

// Option changes a guest before it starts.
type Option func(*setup.Parts)

// WithAccounts gives the guest its own passwd and group files.
func WithAccounts(t testing.TB, passwd, group string) Option {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"passwd": passwd, "group": group} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func(p *setup.Parts) { p.Accounts.Dir = dir }
}

// WithCommands keeps commands' records and output in a folder that other guests
// may continue.
func WithCommands(dir string) Option {
	return func(p *setup.Parts) { p.Commands = dir }
}

// Start starts an agent. It is stopped when the test ends.
func Start(t testing.TB, options ...Option) *Guest {
	t.Helper()
	// A folder of its own, because a socket's path may have no more than 107 bytes.
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	g := &Guest{Socket: filepath.Join(dir, "agent.sock"), System: new(System)}
	if g.Port, err = Listen(g.Socket); err != nil {
		t.Fatal(err)
	}
	spawner, err := process.NewSpawner(nil)
	if err != nil {
		t.Fatal(err)
	}
	parts := setup.Parts{Spawner: spawner, Commands: filepath.Join(dir, "commands")}
	// The machine of the test is not to be grown.
	parts.Growth.Root = filepath.Join(dir, "no-machine")
	for _, o := range options {
		o(&parts)
	}
	c := agent.Config{
		Port: g.Port, System: g.System, Version: link.Version, Handlers: setup.Handlers(parts),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	// Not the test's own context: it ends before the clean-up, which needs the guest.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var served sync.WaitGroup
	served.Go(func() {
		if err := agent.New(c).Serve(ctx); err != nil {
			t.Errorf("agent ended: %v", err)
		}
	})
	g.stop = func() {
		cancel()
		served.Wait()
	}
	t.Cleanup(g.stop)
	return g
}
