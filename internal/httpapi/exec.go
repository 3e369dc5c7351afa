package httpapi

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/vm"
)

func (s *server) execRoutes() []route {
	return []route{
		handle(Operation{
			Method: "POST", Path: "/v5/vms/{id}/exec-await", ID: "execVM", Status: 200, MaxBody: MaxExecBodyBytes,
			Summary: "Run a command in a running VM and wait for it.",
			Description: "A command that exits with another status than 0 is still a 200. " +
				"After VM_NON_RESPONSIVE the command may have run: do not repeat it blindly.",
			Errors: []api.Code{api.CodeBadRequest, api.CodeNotFound, api.CodeConflict, api.CodeVMNonResponsive, api.CodePayloadTooLarge},
		}, s.exec),
	}
}

func (s *server) exec(ctx context.Context, c call[api.ExecRequest]) (api.ExecResponse, error) {
	p, err := execParams(c.body)
	if err != nil {
		return api.ExecResponse{}, err
	}
	res, err := s.vms.Exec(ctx, c.ref, p)
	if err != nil {
		return api.ExecResponse{}, err
	}
	return api.ExecResponse{
		Stdout: string(res.Stdout), Stderr: string(res.Stderr), StatusCode: res.ExitCode, TimedOut: res.TimedOut,
		StdoutBytes: res.StdoutBytes, StderrBytes: res.StderrBytes,
		Truncated: res.StdoutBytes > int64(len(res.Stdout)) || res.StderrBytes > int64(len(res.Stderr)),
	}, nil
}

func execParams(b api.ExecRequest) (vm.ExecParams, error) {
	p := vm.ExecParams{Command: b.Command, User: orZero(b.LinuxUser), Env: b.Env}
	if b.TimeoutMs != nil {
		// Checked here because 0 means the default further in, and because a
		// larger number than a Duration holds would come out as a small one.
		limit := vm.MaxExecTimeout.Milliseconds()
		if *b.TimeoutMs < 1 || *b.TimeoutMs > limit {
			return p, fault.BadField("timeoutMs", "%d is not between 1 and %d", *b.TimeoutMs, limit).
				Hint("leave it out for %d", vm.DefaultExecTimeout.Milliseconds())
		}
		p.Timeout = time.Duration(*b.TimeoutMs) * time.Millisecond
	}
	if b.Stdin != nil {
		stdin, err := base64.StdEncoding.DecodeString(*b.Stdin)
		if err != nil {
			return p, fault.BadField("stdin", "is not base64").Hint("encode it in standard base64 with padding").With(err)
		}
		p.Stdin = stdin
	}
	return p, nil
}
