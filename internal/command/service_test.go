package command_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

// fakeVMs has one VM that is up, and counts its uses.
type fakeVMs struct{ woken, busy int }

func (f *fakeVMs) Awake(context.Context, string) (vm.VM, error) {
	f.woken++
	return vm.VM{ID: "vm-1"}, nil
}

func (f *fakeVMs) Busy(string) func() {
	f.busy++
	return func() { f.busy-- }
}

// fakeNode remembers orders; whatever else is called panics.
type fakeNode struct {
	command.Node

	order command.Order
}

func (f *fakeNode) Exec(_ context.Context, _ string, o command.Order) (command.Result, error) {
	f.order = o
	return command.Result{}, nil
}

func (f *fakeNode) StartExec(_ context.Context, _ string, o command.Order) (command.Output, error) {
	f.order = o
	return quiet{}, nil
}

type quiet struct{ command.Output }

func (quiet) Close() {}

// What is wrong with a request is said before the VM is woken.
func TestRefusals(t *testing.T) {
	t.Parallel()
	vms := new(fakeVMs)
	s := command.NewService(vms, new(fakeNode))
	big := strings.Repeat("x", 128<<10)
	for name, c := range map[string]struct {
		order command.Order
		field string
	}{
		"no command":         {command.Order{}, "command"},
		"long command":       {command.Order{Command: strings.Repeat("x", command.MaxCommandBytes+1)}, "command"},
		"NUL in command":     {command.Order{Command: "a\x00b"}, "command"},
		"timeout below 0":    {command.Order{Command: "x", Timeout: -1}, "timeoutMs"},
		"timeout over a day": {command.Order{Command: "x", Timeout: 24*time.Hour + 1}, "timeoutMs"},
		"long stdin":         {command.Order{Command: "x", Stdin: make([]byte, command.MaxStdinBytes+1)}, "stdin"},
		"user with a colon":  {command.Order{Command: "x", User: "root:x"}, "linuxUser"},
		"long user":          {command.Order{Command: "x", User: strings.Repeat("u", 33)}, "linuxUser"},
		"name with a space":  {command.Order{Command: "x", Env: map[string]string{"A B": ""}}, "env"},
		"empty name":         {command.Order{Command: "x", Env: map[string]string{"": ""}}, "env"},
		"NUL in value":       {command.Order{Command: "x", Env: map[string]string{"A": "\x00"}}, "env"},
		"long value":         {command.Order{Command: "x", Env: map[string]string{"A": big}}, "env"},
		"large environment":  {command.Order{Command: "x", Env: map[string]string{"A": big[9:], "B": big[9:], "C": big[9:], "D": big[9:], "E": big[9:]}}, "env"},
	} {
		_, err := s.Exec(t.Context(), "web", c.order)
		wantFault(t, name, err, api.CodeBadRequest, c.field)
		_, err = s.Start(t.Context(), "web", c.order)
		wantFault(t, name, err, api.CodeBadRequest, c.field)
	}
	for _, id := range []string{"", "x", "exec-", "exec-1", "../x", "exec-7c9e6679-7425-40de-944b-e07fc1f90ae7x"} {
		_, err := s.Get(t.Context(), "web", id)
		wantFault(t, id, err, api.CodeNotFound, "")
		wantFault(t, id, s.Forget(t.Context(), "web", id), api.CodeNotFound, "")
		_, err = s.Follow(t.Context(), "web", command.Follow{ID: id})
		wantFault(t, id, err, api.CodeNotFound, "")
	}
	_, err := s.Signal(t.Context(), "web", "exec-7c9e6679-7425-40de-944b-e07fc1f90ae7", "BOOM")
	wantFault(t, "signal", err, api.CodeBadRequest, "signal")
	wantFault(t, "process", s.SignalProcess(t.Context(), "web", 0, "TERM"), api.CodeBadRequest, "pid")
	if vms.woken > 0 {
		t.Errorf("the vm was woken %d times", vms.woken)
	}
}

func wantFault(t *testing.T, name string, err error, code api.Code, field string) {
	t.Helper()
	if f := fault.As(err); f == nil || f.Code != code || f.Field != field || f.Remedy == "" {
		t.Errorf("%s: %+v, want %s of field %q with a remedy", name, f, code, field)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	vms, node := new(fakeVMs), new(fakeNode)
	s := command.NewService(vms, node)
	r, err := s.Exec(t.Context(), "web", command.Order{Command: "x"})
	if o := node.order; err != nil || o.Timeout != command.DefaultTimeout || o.MaxOutput != command.MaxOutputBytes || o.ID == "" || r.ID != o.ID {
		t.Errorf("%+v, %+v, %v", o, r, err)
	}
	out, err := s.Start(t.Context(), "web", command.Order{Command: "x"})
	if err != nil || node.order.Timeout != 0 || vms.busy != 1 {
		t.Errorf("%+v, busy %d, %v", node.order, vms.busy, err)
	}
	out.Close()
	out.Close()
	if vms.busy != 0 {
		t.Errorf("busy %d after the end", vms.busy)
	}
}

func TestParseSignal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]syscall.Signal{
		"TERM": 15, "SIGTERM": 15, "sigint": 2, "9": 9, "KILL": 9, "64": 64, "WINCH": 28, "SYS": 31,
	} {
		if got, err := command.ParseSignal(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "SIG", "0", "65", "-1", "TERMINATE", "1 5", "99999999999999999999"} {
		if got, err := command.ParseSignal(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}
