package guest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/agent/setup"
	"github.com/pandovm/pando/internal/agent/upgrade"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/guest/guesttest"
	"github.com/pandovm/pando/internal/link"
)

// trial is a guest whose agent can be replaced, by a script instead of a program.
type trial struct {
	file, mark string
	// taken receives the patience of each takeover; the answer is its outcome.
	taken   chan time.Duration
	outcome error
}

func newTrial(t *testing.T) *trial {
	t.Helper()
	dir := t.TempDir()
	tr := &trial{file: filepath.Join(dir, "agent"), mark: filepath.Join(dir, "run", "mark"), taken: make(chan time.Duration, 1)}
	if err := os.WriteFile(tr.file, script("old"), 0o755); err != nil {
		t.Fatal(err)
	}
	return tr
}

// script is an agent that says its version.
func script(version string) []byte { return []byte("#!/bin/sh\necho " + version + "\n") }

func (tr *trial) option(p *setup.Parts) {
	p.File, p.Mark = tr.file, tr.mark
	p.Takeover = func(d time.Duration) error {
		tr.taken <- d
		return tr.outcome
	}
}

// files returns what is in the agent's folder, and the agent's content.
func (tr *trial) files(t *testing.T) (string, string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(tr.file))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	content, err := os.ReadFile(tr.file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " "), string(content)
}

// wantOld checks that nothing of an attempt is left.
func (tr *trial) wantOld(t *testing.T) {
	t.Helper()
	if names, content := tr.files(t); content != string(script("old")) || names != "agent" && names != "agent run" {
		t.Errorf("left are %q, the agent is %q", names, content)
	}
	if _, err := os.Stat(tr.mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mark is left: %v", err)
	}
}

// big is an agent of more than one frame.
func big(version string) guest.Agent {
	return guest.Agent{Version: version, Program: append(script(version), strings.Repeat("#\n", 1<<19)...)}
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	g := guesttest.Start(t, tr.option)
	l := dial(t, g.Socket, link.FreshToken(), epoch(1))
	tr.outcome = nil
	if err := l.Upgrade(t.Context(), big("new"), false, time.Minute); err != nil {
		t.Fatal(err)
	}
	if d := <-tr.taken; d != time.Minute {
		t.Errorf("the old agent waits %s", d)
	}
	// The takeover of this test returns, as one does that has failed: the old agent
	// serves on, and its file with it.
	if err := l.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Upgraded(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr.wantOld(t)
}

// While the new agent is on trial the old one is kept; the host's word ends that.
func TestUpgradeOnTrial(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	hold := make(chan struct{})
	g := guesttest.Start(t, tr.option, func(p *setup.Parts) {
		taken := p.Takeover
		p.Takeover = func(d time.Duration) error {
			err := taken(d)
			<-hold
			return err
		}
	})
	l := dial(t, g.Socket, link.FreshToken(), epoch(1))
	if err := l.Upgrade(t.Context(), big("new"), false, time.Minute); err != nil {
		t.Fatal(err)
	}
	<-tr.taken
	defer close(hold)
	if names, content := tr.files(t); names != "agent agent.old run" || content != string(big("new").Program) {
		t.Errorf("on trial are %q, the agent is %.40q", names, content)
	}
	if mark, err := os.ReadFile(tr.mark); string(mark) != "new\n" {
		t.Errorf("the mark is %q, %v", mark, err)
	}
	// What the new agent does when the host is content.
	s := &upgrade.Service{File: tr.file, Mark: tr.mark}
	next := guesttest.Start(t, func(p *setup.Parts) { p.File, p.Mark, p.Takeover = s.File, s.Mark, nil })
	if err := dial(t, next.Socket, link.FreshToken(), epoch(2)).Upgraded(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names, content := tr.files(t); names != "agent run" || content != string(big("new").Program) {
		t.Errorf("after the trial are %q, the agent is %.40q", names, content)
	}
}

func TestUpgradeRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent guest.Agent
		want  string
	}{
		"another version": {guest.Agent{Version: "new", Program: script("newer")}, `it says that it is version \"newer\" instead of \"new\"`},
		"no program":      {guest.Agent{Version: "new", Program: []byte("nonsense")}, "try new agent"},
		"one that fails":  {guest.Agent{Version: "new", Program: []byte("#!/bin/sh\necho new\nexit 1\n")}, "exit status 1"},
		"an empty one":    {guest.Agent{Version: "new"}, "read order"},
		"without version": {guest.Agent{Program: script("")}, "read order"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTrial(t)
			l := start(t, tr.option)
			if err := l.Upgrade(t.Context(), c.agent, true, time.Minute); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
			if err := l.Ping(t.Context()); err != nil {
				t.Error(err)
			}
			tr.wantOld(t)
		})
	}
}

func TestUpgradeWhileCommandsRun(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	l := start(t, tr.option)
	fifo := filepath.Join(sharedDir(t), "fifo")
	mustFifo(t, fifo)
	ended := make(chan error, 1)
	go func() {
		_, err := l.Exec(context.WithoutCancel(t.Context()), guest.ExecOrder{Command: "echo started >" + fifo + "; read x <" + fifo, User: "root"})
		ended <- err
	}()
	eventually(t, fifo)
	err := l.Upgrade(t.Context(), big("new"), false, time.Minute)
	f := fault.As(err)
	if f == nil || f.Code != api.CodeConflict || f.Reason != api.ReasonCommandsRunning || !strings.Contains(f.Message, "echo started") {
		t.Errorf("while a command runs: %v", err)
	}
	tr.wantOld(t)
	if err := l.Upgrade(t.Context(), big("new"), true, time.Minute); err != nil {
		t.Errorf("forced: %v", err)
	}
	<-tr.taken
	if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := l.Upgrade(t.Context(), guest.Agent{Version: "x", Program: script("y")}, false, time.Minute); fault.HasReason(err, api.ReasonCommandsRunning) {
		t.Errorf("after the command has ended: %v", err)
	}
}

// An agent from before says that it does not know the request.
func TestUpgradeUnsupported(t *testing.T) {
	t.Parallel()
	l := start(t)
	for what, err := range map[string]error{
		"upgrade":  l.Upgrade(t.Context(), big("new"), false, time.Minute),
		"upgraded": l.Upgraded(t.Context()),
	} {
		if f := fault.As(err); f == nil || f.Code != api.CodeAgentUnsupported {
			t.Errorf("%s: %v, want %s", what, err, api.CodeAgentUnsupported)
		}
	}
	if err := l.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
