package command

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// Service runs the use cases; ref is always a VM's id or slug. It is safe for
// concurrent use.
type Service struct {
	vms  VMs
	node Node
}

// NewService returns a service for the VMs on node.
func NewService(vms VMs, node Node) *Service { return &Service{vms: vms, node: node} }

func newID() string { return "exec-" + uuid.NewString() }

// checkID spares the VM questions about what cannot be a command's id.
func checkID(id string) error {
	rest, ok := strings.CutPrefix(id, "exec-")
	if _, err := uuid.Parse(rest); !ok || err != nil || len(rest) != 36 {
		return (&fault.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("no command has the id %.60q", id)}).
			Hint("list a vm's commands: GET …/exec")
	}
	return nil
}

// awake returns the id of the VM once it runs; it is busy until release.
func (s *Service) awake(ctx context.Context, ref string) (id string, release func(), err error) {
	v, err := s.vms.Awake(ctx, ref)
	if err != nil {
		return "", nil, err
	}
	return v.ID, s.vms.Busy(v.ID), nil
}

// Exec runs a command and returns its outcome, and what it printed up to
// MaxOutputBytes of each stream. It waits for a VM that is starting and resumes
// one that is paused. If ctx ends first the command goes on.
func (s *Service) Exec(ctx context.Context, ref string, o Order) (Result, error) {
	if err := check(o); err != nil {
		return Result{}, err
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	o.ID, o.MaxOutput = newID(), MaxOutputBytes
	id, release, err := s.awake(ctx, ref)
	if err != nil {
		return Result{}, err
	}
	defer release()
	r, err := s.node.Exec(ctx, id, o)
	if err != nil {
		return Result{}, fmt.Errorf("exec in vm %s: %w", id, err)
	}
	r.ID = o.ID
	return r, nil
}

// Start starts a command, which has no timeout unless the order names one, and
// follows it. The caller closes the output.
func (s *Service) Start(ctx context.Context, ref string, o Order) (Output, error) {
	if err := check(o); err != nil {
		return nil, err
	}
	o.ID = newID()
	id, release, err := s.awake(ctx, ref)
	if err != nil {
		return nil, err
	}
	out, err := s.node.StartExec(ctx, id, o)
	return busyOutput(out, release, err)
}

// Follow follows a command that was started earlier. The caller closes the
// output.
func (s *Service) Follow(ctx context.Context, ref string, f Follow) (Output, error) {
	if err := checkID(f.ID); err != nil {
		return nil, err
	}
	id, release, err := s.awake(ctx, ref)
	if err != nil {
		return nil, err
	}
	out, err := s.node.FollowExec(ctx, id, f)
	return busyOutput(out, release, err)
}

// Feed passes input on as the command takes it.
func (s *Service) Feed(ctx context.Context, ref string, in Input) (Info, error) {
	if err := checkID(in.ID); err != nil {
		return Info{}, err
	}
	id, release, err := s.awake(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	defer release()
	return s.node.FeedExec(ctx, id, in)
}

// Signal signals the process group of a command that runs.
func (s *Service) Signal(ctx context.Context, ref, execID, signal string) (Info, error) {
	sig, err := ParseSignal(signal)
	if err != nil {
		return Info{}, err
	}
	if err := checkID(execID); err != nil {
		return Info{}, err
	}
	id, release, err := s.awake(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	defer release()
	return s.node.SignalExec(ctx, id, execID, sig)
}

// Get returns what is known of a command, for KeptFor after its end.
func (s *Service) Get(ctx context.Context, ref, execID string) (Info, error) {
	if err := checkID(execID); err != nil {
		return Info{}, err
	}
	id, release, err := s.awake(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	defer release()
	return s.node.ExecInfo(ctx, id, execID)
}

// List returns the commands of a VM, newest first.
func (s *Service) List(ctx context.Context, ref string) ([]Info, error) {
	id, release, err := s.awake(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.node.Execs(ctx, id)
}

// Forget kills a command that runs and removes its record and its output.
func (s *Service) Forget(ctx context.Context, ref, execID string) error {
	if err := checkID(execID); err != nil {
		return err
	}
	id, release, err := s.awake(ctx, ref)
	if err != nil {
		return err
	}
	defer release()
	return s.node.ForgetExec(ctx, id, execID)
}

// Processes lists the processes of a VM, kernel threads left out.
func (s *Service) Processes(ctx context.Context, ref string) ([]Process, error) {
	id, release, err := s.awake(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.node.Processes(ctx, id)
}

// SignalProcess signals one process.
func (s *Service) SignalProcess(ctx context.Context, ref string, pid int, signal string) error {
	sig, err := ParseSignal(signal)
	if err != nil {
		return err
	}
	if pid < 1 {
		return fault.BadField("pid", "%d is not a process id", pid).Hint("see what runs: pando vm ps %s", ref)
	}
	id, release, err := s.awake(ctx, ref)
	if err != nil {
		return err
	}
	defer release()
	return s.node.SignalProcess(ctx, id, pid, sig)
}

// output keeps the VM busy while it is open.
type output struct {
	Output

	release func()
}

func busyOutput(out Output, release func(), err error) (Output, error) {
	if err != nil {
		release()
		return nil, err
	}
	return output{Output: out, release: sync.OnceFunc(release)}, nil
}

// Close implements Output.
func (o output) Close() {
	o.Output.Close()
	o.release()
}
