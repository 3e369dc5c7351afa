package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/link"
)

// Agent is a program for guests.
type Agent struct {
	// Version is what it says when it is asked.
	Version string
	Program []byte
}

// NewAgent returns the agent that program is.
func NewAgent(program []byte) Agent {
	return Agent{Version: link.AgentVersion(program[:min(len(program), link.BuildHead)]), Program: program}
}

// Upgrade sends the guest another agent. When it returns without an error the
// new agent takes over, the same process, and this link is of no more use: close
// it and Dial with the fresh token. Unless Upgraded is called on the link to the
// new agent within patience, the old one comes back.
//
// While commands or terminals run it is fault CONFLICT with reason
// commands_running, unless force is set: then they go on, cut off from the host.
// An agent that cannot be replaced is fault AGENT_UNSUPPORTED; in all cases of an
// error the old agent goes on.
func (l *Link) Upgrade(ctx context.Context, a Agent, force bool, patience time.Duration) error {
	sum := sha256.Sum256(a.Program)
	order, _ := link.UpgradeOrder{
		Version: a.Version, Size: int64(len(a.Program)), SHA256: sum[:], Force: force, Patience: patience,
	}.MarshalBinary()
	e, err := l.open(ctx, link.PathUpgrade, agentBody(order, a.Program))
	if err != nil {
		return err
	}
	// The agent takes the end of the exchange for the host's leave to go on.
	defer e.Close()
	r, err := readReply(link.NewFrameReader(e.body))
	if err != nil {
		return e.broken(err)
	}
	return upgradeRefused(r)
}

// agentBody is the body of the request, made as it is read.
func agentBody(order, program []byte) io.Reader {
	parts := []io.Reader{bytes.NewReader(link.AppendFrame(nil, link.FrameUpgrade, order))}
	for chunk := range slices.Chunk(program, link.MaxFrame) {
		parts = append(parts, bytes.NewReader(link.AppendFrame(nil, link.FrameStdin, chunk)))
	}
	return io.MultiReader(append(parts, bytes.NewReader(link.AppendFrame(nil, link.FrameStdinEnd, nil)))...)
}

// Upgraded tells the agent that it is good.
func (l *Link) Upgraded(ctx context.Context) error {
	_, err := l.request(ctx, link.PathUpgraded, nil)
	return err
}

// maxNamed bounds how many running commands an error names.
const maxNamed = 10

func upgradeRefused(r link.Reply) error {
	switch {
	case len(r.Running) > 0:
		return fault.Conflict(api.ReasonCommandsRunning, "commands or terminals run in the guest: %s", named(r.Running)).
			Hint("wait until they have ended or end them, or force the change: they go on, and nobody reads their output or learns how they end")
	case r.Error == link.UnknownRequest:
		return unsupported("be replaced")
	case r.Error != "":
		return fmt.Errorf("replace agent: agent reports %.300q", r.Error)
	}
	return nil
}

// named lists what a guest says runs in it, in safe characters.
func named(running []string) string {
	more := ""
	if len(running) > maxNamed {
		more = fmt.Sprintf(" and %d more", len(running)-maxNamed)
	}
	names := make([]string, 0, maxNamed)
	for _, r := range running[:min(len(running), maxNamed)] {
		names = append(names, fmt.Sprintf("%.100q", r))
	}
	return strings.Join(names, ", ") + more
}

// unsupported is the error of an agent that is too old to do what was asked.
func unsupported(what string) error {
	return &fault.Error{
		Code: api.CodeAgentUnsupported, Message: "the agent in this guest is too old to " + what,
		Remedy: "create the VM anew from a current image, or replace its agent: pando vm agent upgrade VM",
	}
}

// Unsupported returns fault AGENT_UNSUPPORTED if payload, a FrameReply's, says that the
// agent does not know the path of the request, and nil otherwise.
func Unsupported(payload []byte, what string) error {
	var r link.Reply
	if r.UnmarshalBinary(payload) == nil && r.Error == link.UnknownRequest {
		return unsupported(what)
	}
	return nil
}
