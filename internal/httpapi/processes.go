package httpapi

import (
	"context"
	"strconv"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

func (s *server) processRoutes() []route {
	target := []api.Code{api.CodeNotFound, api.CodeConflict, api.CodeVMNonResponsive, api.CodeAgentUnsupported}
	return []route{
		handle(Operation{
			Method: "GET", Path: "/v5/vms/{id}/processes", ID: "listProcesses", Status: 200,
			Summary: "List the processes of a VM.", Errors: target,
		}, s.listProcesses),
		handle(Operation{
			Method: "POST", Path: "/v5/vms/{id}/processes/{sub}/signal", ID: "signalProcess", Status: 204,
			Summary: "Signal a process of a VM.", Errors: target,
		}, s.signalProcess),
	}
}

func (s *server) listProcesses(ctx context.Context, c call[none]) (api.ProcessList, error) {
	found, err := s.commands.Processes(ctx, c.ref)
	if err != nil {
		return api.ProcessList{}, err
	}
	list := api.ProcessList{Processes: make([]api.Process, 0, len(found))}
	for _, p := range found {
		list.Processes = append(list.Processes, api.Process{
			PID: p.PID, ParentPID: p.ParentPID, User: p.User, State: p.State, CPUTimeMs: p.CPUTime.Milliseconds(),
			RSSBytes: p.RSS, StartedAt: p.StartedAt.UTC(), Command: p.Command, ExecID: orNull(p.ExecID),
		})
	}
	return list, nil
}

func (s *server) signalProcess(ctx context.Context, c call[api.SignalRequest]) (none, error) {
	pid, err := strconv.ParseInt(c.sub, 10, 32)
	if err != nil || pid < 1 {
		return none{}, fault.BadField("pid", "%q is not a process id", clip(c.sub)).Hint("GET …/processes lists them")
	}
	return none{}, s.commands.SignalProcess(ctx, c.ref, int(pid), c.body.Signal)
}
