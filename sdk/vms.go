package pando

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pandovm/pando/api"
)

const vmsPath = "/v5/vms"

// MaxStdin is the most input, in bytes, that a command can be given.
const MaxStdin = 1 << 20

// VMs holds the calls on VMs.
type VMs struct{ c *Client }

// VMFilter selects VMs. Zero fields select everything.
type VMFilter struct {
	State api.State
	// Slug is matched exactly, SnapshotID is an id or a slug, Search is part of
	// a name.
	Slug, SnapshotID, Search string
	// Metadata must all be present with these values.
	Metadata map[string]string
	// Limit of 0 means no limit.
	Limit, Offset int
}

func (f VMFilter) query() url.Values {
	q := url.Values{}
	set(q, "state", string(f.State))
	set(q, "slug", f.Slug)
	set(q, "snapshotId", f.SnapshotID)
	set(q, "search", f.Search)
	set(q, "metadata", joinPairs(f.Metadata))
	setPage(q, f.Limit, f.Offset)
	return q
}

// Create makes a VM from a snapshot or a base image and returns once its guest
// answers. A request without a firewall gets an empty one. The first use of a
// base image builds it, which takes minutes. It is safe to lose the connection:
// the call is then made again, and no second VM is made.
func (v *VMs) Create(ctx context.Context, r api.CreateVMRequest) (api.VM, error) {
	if r.Firewall == nil || r.Firewall.Rules == nil {
		r.Firewall = &api.Firewall{Rules: []api.FirewallRuleRequest{}}
	}
	return callOnce[api.VM](ctx, v.c, http.MethodPost, vmsPath, r)
}

// List returns the VMs that match, newest first.
func (v *VMs) List(ctx context.Context, f VMFilter) (api.VMList, error) {
	return call[api.VMList](ctx, v.c, http.MethodGet, withQuery(vmsPath, f.query()), nil)
}

// Get returns one VM.
func (v *VMs) Get(ctx context.Context, ref string) (api.VM, error) {
	return callOn[api.VM](ctx, v.c, http.MethodGet, "vms", ref, "", nil)
}

// Update changes the settings of a VM in any state. Fields that are nil stay as
// they are; a timer of -1 and a name of "" are removed, and metadata is merged.
func (v *VMs) Update(ctx context.Context, ref string, r api.UpdateVMRequest) (api.VM, error) {
	return callOn[api.VM](ctx, v.c, http.MethodPatch, "vms", ref, "", r)
}

// Start resumes a paused VM or boots a stopped one, and returns once its guest
// answers. Starting a running VM changes nothing.
func (v *VMs) Start(ctx context.Context, ref string) (api.VM, error) {
	return v.act(ctx, ref, "start")
}

// Pause saves memory, devices and disk of a running VM and ends its process.
func (v *VMs) Pause(ctx context.Context, ref string) (api.VM, error) {
	return v.act(ctx, ref, "pause")
}

// Stop shuts a VM down; only its disk remains.
func (v *VMs) Stop(ctx context.Context, ref string) (api.VM, error) {
	return v.act(ctx, ref, "stop")
}

// UpgradeAgent gives a running VM the agent that the daemon has. While commands
// or terminals run in it, that is refused unless r forces it.
func (v *VMs) UpgradeAgent(ctx context.Context, ref string, r api.UpgradeAgentRequest) (api.VM, error) {
	return callOn[api.VM](ctx, v.c, http.MethodPost, "vms", ref, "agent", r)
}

func (v *VMs) act(ctx context.Context, ref, verb string) (api.VM, error) {
	return callOn[api.VM](ctx, v.c, http.MethodPost, "vms", ref, verb, struct{}{})
}

// Resize makes a VM larger; what is nil stays as it is. A running VM has
// everything when the call returns, a paused or stopped one has its CPUs and
// memory when it starts.
func (v *VMs) Resize(ctx context.Context, ref string, r api.ResizeVMRequest) (api.VM, error) {
	return callOn[api.VM](ctx, v.c, http.MethodPost, "vms", ref, "resize", r)
}

// Fork captures a running VM once and starts children from that moment. A
// child that failed is reported in its entry, not as the call's error. It is
// safe to lose the connection: no child is made twice.
func (v *VMs) Fork(ctx context.Context, ref string, r api.ForkVMRequest) (api.ForkVMResponse, error) {
	return makeOf[api.ForkVMResponse](ctx, v.c, ref, "fork", r)
}

// Snapshot saves a running or paused VM. A running one goes on at once. It is
// safe to lose the connection: no second snapshot is made.
func (v *VMs) Snapshot(ctx context.Context, ref string, r api.CreateSnapshotRequest) (api.CreateSnapshotResponse, error) {
	return makeOf[api.CreateSnapshotResponse](ctx, v.c, ref, "snapshot", r)
}

// makeOf makes things of a VM, once.
func makeOf[T any](ctx context.Context, c *Client, ref, verb string, in any) (T, error) {
	path, err := objectPath("vms", ref, verb)
	if err != nil {
		var none T
		return none, err
	}
	return callOnce[T](ctx, c, http.MethodPost, path, in)
}

// Exec runs a command and waits for its end. An exit code other than 0 is no
// error. If the call fails after it reached the daemon, the command may have
// run.
func (v *VMs) Exec(ctx context.Context, ref string, r api.ExecRequest) (api.ExecResponse, error) {
	return callOn[api.ExecResponse](ctx, v.c, http.MethodPost, "vms", ref, "exec-await", r)
}

// Delete removes a VM in any state.
func (v *VMs) Delete(ctx context.Context, ref string) error {
	_, err := callOn[nothing](ctx, v.c, http.MethodDelete, "vms", ref, "", nil)
	return err
}

// Stdin encodes input for api.ExecRequest; at most MaxStdin bytes are accepted
// by the daemon.
func Stdin(b []byte) *string {
	return new(base64.StdEncoding.EncodeToString(b))
}

func set(q url.Values, key, value string) {
	if value != "" {
		q.Set(key, value)
	}
}

func setPage(q url.Values, limit, offset int) {
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	if offset > 0 {
		q.Set("offset", strconv.Itoa(offset))
	}
}

// joinPairs gives "k:v,k:v" in a fixed order.
func joinPairs(m map[string]string) string {
	pairs := make([]string, 0, len(m))
	for k, v := range m {
		pairs = append(pairs, k+":"+v)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}
