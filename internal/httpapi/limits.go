package httpapi

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/field"
	"github.com/pandovm/pando/internal/file"
	"github.com/pandovm/pando/internal/network"
	"github.com/pandovm/pando/internal/operation"
	"github.com/pandovm/pando/internal/terminal"
	"github.com/pandovm/pando/internal/vm"
)

// Limits lists the limits and defaults of the API. A new one is one line here,
// made from the constant that the code checks; what only the wiring knows
// comes through Config.Limits.
func Limits() []api.Limit {
	return []api.Limit{
		bytesLimit("body", MaxBodyBytes, api.CodePayloadTooLarge, "Body of a JSON request, unless another limit names its route."),
		bytesLimit("exec.body", MaxExecBodyBytes, api.CodePayloadTooLarge, "Body of exec-await and exec."),
		period("body.patience", bodyPatience, api.CodeBadRequest, "Time in which the body of a JSON request must arrive."),
		bytesLimit("header", maxHeaderBytes, "", "Line and headers of a request; a longer one is answered 431."),
		characters("slug", vm.MaxSlugLength, "Slug of a VM or snapshot."),
		bytesLimit("displayName", vm.MaxDisplayName, api.CodeBadRequest, "Display name of a VM or snapshot."),
		number("metadata.entries", vm.MaxMetadataEntries, api.CodeBadRequest, "Entries in the metadata of a VM."),
		bytesLimit("metadata.length", vm.MaxMetadataLength, api.CodeBadRequest, "A key, or a value, of the metadata of a VM."),
		period("timer", field.MaxTimer, api.CodeBadRequest, "Longest timer of a VM or snapshot."),
		number("placement.antiAffinity", vm.MaxAntiAffinity, api.CodeBadRequest, "Anti-affinity rules of a VM."),
		number("placement.matchLabels", vm.MaxMatchLabels, api.CodeBadRequest, "Labels that an anti-affinity rule selects by."),
		number("vm.cpu", vm.MaxCPUs, api.CodeBadRequest, "Virtual CPUs that a VM can grow to."),
		mebibytes("vm.memory", vm.MaxMemoryMiB, api.CodeBadRequest, "Memory that a VM can grow to."),
		mebibytes("vm.memory.step", vm.MemoryStepMiB, api.CodeBadRequest, "What the memory grows by is a multiple of this."),
		mebibytes("vm.storage", vm.MaxStorageMiB, api.CodeBadRequest, "Root disk that a VM can grow to."),
		number("fork.children", vm.MaxForkChildren, api.CodeBadRequest, "Children of one fork."),
		period("background.keep", operation.DefaultKeepResult, api.CodeNotFound, "Time for which the answer of a background request is kept."),
		period("background.after", operation.MaxBackgroundAfter, api.CodeBadRequest, "Longest wait in line that a background header may ask for."),
		number("background.requests", operation.MaxBackground, "", "Background requests under way or kept; beyond it answers come in line."),
		bytesLimit("background.result", operation.MaxResultBytes, api.CodeBackgroundResultUnstorable, "One kept answer of a background request."),
		bytesLimit("background.results", operation.MaxKeptBytes, api.CodeBackgroundResultUnstorable, "All kept answers of background requests."),
		period("idempotency.keep", operation.DefaultKeepKey, "", "Time for which an Idempotency-Key stands for its answer."),
		characters("idempotency.key", operation.MaxKeyLength, "An Idempotency-Key."),
		bytesLimit("idempotency.answer", operation.MaxKeptAnswer, "", "An answer kept for an Idempotency-Key; a larger one is made anew from what exists."),
		number("firewall.rules", network.MaxFirewallRules, api.CodeConflict, "Firewall rules of all VMs."),
		number("tls.rules", network.MaxTLSRules, api.CodeConflict, "TLS rules of all VMs."),
		characters("rule.description", network.MaxDescription, "Description of a rule."),
		number("tls.patch.operations", network.MaxPatchOperations, api.CodeBadRequest, "Operations in the JSON patch of a TLS rule."),
		bytesLimit("tls.patch.size", network.MaxPatchBytes, api.CodeBadRequest, "The JSON patch of a TLS rule."),
		bytesLimit("exec.command", command.MaxCommandBytes, api.CodeBadRequest, "Text of a command."),
		bytesLimit("exec.stdin", command.MaxStdinBytes, api.CodeBadRequest, "Input of a command, decoded."),
		bytesLimit("exec.output", command.MaxOutputBytes, "", "Each of stdout and stderr in an answer; more is cut off and marked."),
		period("exec.timeout.default", command.DefaultTimeout, "", "Time after which a command is killed if the request names none."),
		period("exec.timeout.max", command.MaxTimeout, api.CodeBadRequest, "Longest time that a command may be given."),
		bytesLimit("exec.env", command.MaxEnvBytes, api.CodeBadRequest, "Environment of a command, names and values."),
		bytesLimit("exec.env.entry", command.MaxArgumentBytes, api.CodeBadRequest, "One entry of a command's environment."),
		bytesLimit("exec.kept", command.KeptOutputBytes, "", "Output of one command that the guest keeps; at most a fortieth of its disk."),
		bytesLimit("exec.kept.total", command.KeptTotalBytes, "", "Output of all commands that the guest keeps; at most a tenth of its disk."),
		number("exec.kept.commands", command.KeptCommands, "", "Ended commands that a guest knows; the oldest go first."),
		period("exec.kept.time", command.KeptFor, "", "Time for which an ended command is known."),
		bytesLimit("file.path", file.MaxPath, api.CodeBadRequest, "A path in a guest."),
		bytesLimit("file.size", file.MaxFile, api.CodePayloadTooLarge, "A file that is written; one that is uploaded in parts gives BAD_REQUEST."),
		bytesLimit("file.chunk", file.MaxChunk, api.CodePayloadTooLarge, "One part of an upload."),
		bytesLimit("file.body", file.MaxJSONFile, api.CodePayloadTooLarge, "Body of a write that is a JSON document."),
		number("file.entries", file.MaxListed, api.CodeBadRequest, "Entries in one listing; format=ndjson has no such limit."),
		number("pty.cols.default", terminal.DefaultCols, "", "Columns of a terminal if the request names none."),
		number("pty.rows.default", terminal.DefaultRows, "", "Rows of a terminal if the request names none."),
		number("pty.size", terminal.MaxSize, api.CodeBadRequest, "Columns, or rows, of a terminal."),
		characters("pty.slug", terminal.MaxSlug, "Slug of a terminal session."),
		bytesLimit("pty.exec", terminal.MaxExec, api.CodeBadRequest, "Text of a terminal's command."),
		number("pty.sessions", terminal.MaxSessions, api.CodeLimitExceeded, "Terminal sessions of one VM whose programs run."),
		number("pty.viewers", terminal.MaxViewers, api.CodeLimitExceeded, "Clients attached to one terminal session."),
		number("pty.kept.sessions", terminal.KeptSessions, "", "Ended terminal sessions that a guest shows; the oldest go first."),
		period("pty.kept.time", terminal.KeptFor, "", "Time for which an ended terminal session can be looked at."),
		bytesLimit("pty.scrollback", terminal.MaxScrollback, "", "Scrollback of one terminal session; many sessions share eight times as much."),
		number("pty.scrollback.lines", terminal.MaxScrollbackLines, "", "Lines in the scrollback of one terminal session."),
	}
}

func number(name string, n int64, code api.Code, text string) api.Limit {
	return api.Limit{Name: name, Value: n, Unit: api.UnitCount, Code: code, Description: text}
}

func characters(name string, n int64, text string) api.Limit {
	return api.Limit{Name: name, Value: n, Unit: api.UnitCharacters, Code: api.CodeBadRequest, Description: text}
}

func bytesLimit(name string, n int64, code api.Code, text string) api.Limit {
	return api.Limit{Name: name, Value: n, Unit: api.UnitBytes, Code: code, Description: text}
}

func mebibytes(name string, n int64, code api.Code, text string) api.Limit {
	return api.Limit{Name: name, Value: n, Unit: api.UnitMebibytes, Code: code, Description: text}
}

// period is a limit of time, in seconds if those are whole.
func period(name string, d time.Duration, code api.Code, text string) api.Limit {
	l := api.Limit{Name: name, Value: d.Milliseconds(), Unit: api.UnitMilliseconds, Code: code, Description: text}
	if d%time.Second == 0 {
		l.Value, l.Unit = int64(d/time.Second), api.UnitSeconds
	}
	return l
}

func (s *server) limitRoutes() []route {
	return []route{
		handle(Operation{
			Method: "GET", Path: "/v5/limits", ID: "listLimits", Status: 200,
			Summary:     "List every limit and default of the API.",
			Description: "Each has a stable name, a value with its unit, and the code of the error that exceeding it gives.",
		}, s.listLimits),
	}
}

func (s *server) listLimits(context.Context, call[none]) (api.LimitList, error) {
	list := slices.Concat(Limits(), s.limits)
	slices.SortFunc(list, func(a, b api.Limit) int { return cmp.Compare(a.Name, b.Name) })
	return api.LimitList{Limits: list}, nil
}
