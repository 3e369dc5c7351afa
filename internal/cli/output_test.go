package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/cli"
)

func TestTranscripts(t *testing.T) {
	t.Parallel()
	stopped := exampleFork("9")
	stopped.State, stopped.StateReason = api.StateStopped, "guest powered off"
	mux := http.NewServeMux()
	answers := map[string]any{
		"GET /v5/vms":                   api.VMList{VMs: []api.VM{exampleFork("1"), exampleVM(), stopped}, TotalCount: 3, RunningCount: 2, StoppedCount: 1},
		"POST /v5/vms":                  exampleVM(),
		"GET /v5/vms/web":               exampleVM(),
		"GET /v5/vms/timed":             timedVM(),
		"PATCH /v5/vms/web":             timedVM(),
		"GET /v5/snapshots/prepared":    exampleSnapshot(),
		"PATCH /v5/snapshots/prepared":  exampleSnapshot(),
		"GET /v5/vms/try-9":             stopped,
		"POST /v5/vms/web/start":        exampleVM(),
		"POST /v5/vms/web/pause":        pausedVM(),
		"POST /v5/vms/web/stop":         stopped,
		"POST /v5/vms/web/fork":         api.ForkVMResponse{Forks: forks("1", "2"), PauseMs: 37.6},
		"POST /v5/vms/half/fork":        api.ForkVMResponse{Forks: append(forks("1"), api.Fork{Error: noMemory()}), PauseMs: 37.6},
		"POST /v5/vms/web/resize":       exampleVM(),
		"POST /v5/vms/asleep/resize":    pausedVM(),
		"POST /v5/vms/web/snapshot":     exampleSnapshotResponse(),
		"POST /v5/vms/web/exec-await":   api.ExecResponse{Stdout: "hello\n", Stderr: "careful\n", StatusCode: new(3)},
		"GET /v5/vms/web/exec":          api.ExecList{Execs: exampleExecs(), TotalCount: 2},
		"GET /v5/vms/web/processes":     api.ProcessList{Processes: exampleProcesses()},
		"POST /v5/vms/web/agent":        exampleVM(),
		"GET /v5/limits":                exampleLimits(),
		"DELETE /v5/vms/web":            nil,
		"DELETE /v5/vms/try-9":          nil,
		"GET /v5/snapshots":             api.SnapshotList{Snapshots: []api.Snapshot{exampleSnapshot()}, TotalCount: 1},
		"DELETE /v5/snapshots/prepared": nil,
		"DELETE /v5/firewall/rules/f1":  nil,
		"GET /v5/firewall/rules":        api.FirewallRuleList{Rules: []api.FirewallRule{exampleRule()}, TotalCount: 1},
		"POST /v5/firewall/rules":       exampleRule(),
		"GET /v5/firewall/rules/f1":     exampleRule(),
	}
	for pattern, answer := range answers {
		mux.Handle(pattern, reply(t, http.StatusOK, answer))
	}
	mux.Handle("/", reply(t, http.StatusNotFound, api.Error{
		Code: api.CodeNotFound, Message: `no vm has the id or slug "nope"`, Remedy: "list what exists with: pando vm ls", RequestID: "req-7",
	}))

	tests := map[string]string{
		"vm-ls": "vm ls", "vm-ls-all": "vm ls --all", "vm-ls-quiet": "vm ls -q", "vm-ls-json": "vm ls --json",
		"vm-create": "vm create", "vm-create-quiet": "vm create -q", "vm-create-json": "vm create pando/debian --json",
		"vm-get": "vm get web", "vm-get-stopped": "vm get try-9", "vm-get-timers": "vm get timed",
		"vm-update": "vm update web --ttl 2h", "vm-update-json": "vm update web --slug x --json", "snapshot-get": "snapshot get prepared",
		"snapshot-update": "snapshot update prepared --ttl never", "snapshot-create": "snapshot create web --ttl 1h",
		"usage-timer": "vm create --ttl soon", "usage-timer-fraction": "vm update web --idle-timeout 1500ms",
		"usage-ephemeral": "vm create --ephemeral --auto-delete 1h", "usage-page": "vm ls --limit -1", "usage-apart": "vm create --apart-from db",
		"vm-get-json": "vm get web --json", "vm-get-missing": "vm get nope",
		"vm-get-missing-json": "vm get nope --json",
		"vm-start":            "vm start web", "vm-pause": "vm pause web", "vm-stop": "vm stop web",
		"vm-fork": "vm fork web -n 2 --slug try", "vm-fork-half": "vm fork half -n 2 --slug try", "vm-fork-half-json": "vm fork half -n 2 --json",
		"vm-agent-upgrade": "vm agent upgrade web", "vm-agent-upgrade-json": "vm agent upgrade web --json",
		"vm-snapshot": "vm snapshot web", "vm-snapshot-json": "vm snapshot web --json",
		"vm-exec-json": "vm exec web --json -- ls", "vm-logs": "vm logs web", "vm-logs-json": "vm logs web --json", "vm-ps": "vm ps web", "vm-ps-json": "vm ps web --json",
		"vm-rm": "vm rm web nope try-9", "vm-rm-json": "vm rm web nope --json",
		"snapshot-ls": "snapshot ls", "snapshot-ls-json": "snapshot ls --json", "snapshot-rm": "snapshot rm prepared",
		"image-ls": "image ls", "image-ls-json": "image ls --json", "image-show": "image show pando/debian",
		"image-show-missing": "image show nope", "image-build": "image build", "image-build-json": "image build pando/busybox --json",
		"firewall-ls": "firewall ls --vm web", "firewall-ls-json": "firewall ls --json", "firewall-get": "firewall get f1",
		"firewall-get-json": "firewall get f1 --json",
		"firewall-create":   "firewall create --from public --to vm=web,proto=tcp,port=443", "firewall-rm": "firewall rm f1 f2",
		"firewall-create-json": "firewall create --from vm=web --to cidr=10.0.0.0/8 --json",
		"usage-firewall-end":   "firewall create --from public --to vm", "usage-firewall-flag": "firewall create --from public",
		"usage-firewall-port": "firewall create --from public --to vm=web,port=x", "usage-firewall-word": "firewall create --from everywhere --to public",
		"limits": "limits", "limits-json": "limits --json",
		"image-rm":           "image rm pando/debian",
		"usage-unknown":      "vm frok web",
		"usage-unknown-root": "vn ls",
		"usage-unknown-json": "vn ls --json",
		"usage-flag":         "vm ls --states",
		"usage-argument":     "vm get",
		"usage-extra":        "vm get a b",
		"usage-state":        "vm ls --state asleep",
		"usage-metadata":     "vm create --metadata broken",
		"vm-resize":          "vm resize web --cpu 2 --memory 4GB --storage 40GB", "vm-resize-json": "vm resize web --cpu 2 --json",
		"vm-resize-paused":    "vm resize asleep --memory 4096",
		"usage-resize":        "vm resize web",
		"usage-resize-size":   "vm resize web --memory 4XB",
		"usage-identity":      "vm fork web --identity mine",
		"usage-exec-option":   "vm exec web ls -l",
		"usage-exec-nothing":  "vm exec web",
		"usage-exec-timeout":  "vm exec web --timeout 0s ls",
		"usage-serve-listen":  "serve --listen 7878",
		"usage-top-interval":  "top --interval 1ms",
		"usage-top-sort":      "top --sort size",
		"usage-snapshot-none": "snapshot rm",
	}
	for name, line := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, mux)
			args := strings.Fields(line)
			golden(t, name, l.transcript(l.run(t.Context(), args...), args))
		})
	}
}

func exampleRule() api.FirewallRule {
	return api.FirewallRule{
		ID: "f1", Action: api.ActionAllow, Source: api.FirewallEndpoint{Public: new(true)},
		Destination: api.FirewallEndpoint{VMID: new(exampleVM().ID), Protocol: new(api.ProtocolTCP), Port: new(443)},
		Description: "the shop", CreatedAt: moment().Add(-time.Hour), UpdatedAt: moment().Add(-time.Hour),
		Dependencies: []api.RuleDependency{{Kind: api.DependencyVM, ID: exampleVM().ID, Slug: "web", DisplayName: "Web shop"}},
	}
}

func exampleLimits() api.LimitList {
	return api.LimitList{Limits: []api.Limit{
		{Name: "body", Value: 1 << 20, Unit: api.UnitBytes, Code: api.CodePayloadTooLarge, Description: "Body of a JSON request."},
		{Name: "exec.grace", Value: 1500, Unit: api.UnitMilliseconds, Description: "Time between TERM and KILL."},
		{Name: "exec.timeout.max", Value: 86400, Unit: api.UnitSeconds, Code: api.CodeBadRequest, Description: "Longest time that a command may be given."},
		{Name: "fork.children", Value: 100, Unit: api.UnitCount, Code: api.CodeBadRequest, Description: "Children of one fork."},
		{Name: "slug", Value: 63, Unit: api.UnitCharacters, Code: api.CodeBadRequest, Description: "Slug of a VM or snapshot."},
		{Name: "vm.memory.max", Value: 2048, Unit: api.UnitMebibytes, Code: api.CodeBadRequest, Description: "Memory of a VM."},
	}}
}

func forks(names ...string) []api.Fork {
	var all []api.Fork
	for _, n := range names {
		all = append(all, api.Fork{VM: new(exampleFork(n))})
	}
	return all
}

func noMemory() *api.Error {
	return &api.Error{
		Code: api.CodeConflict, Reason: api.ReasonNoMemory, Message: "the host has 1 GiB of memory left, the VM needs 2 GiB",
		Remedy: "pause or delete VMs", Needed: 2 << 30, Available: 1 << 30,
	}
}

func pausedVM() api.VM {
	vm := exampleVM()
	vm.State = api.StatePaused
	return vm
}

func timedVM() api.VM {
	vm := exampleVM()
	vm.IdleTimeoutSeconds, vm.AutoDeleteSeconds, vm.TTLSeconds = new(int64(900)), new(int64(0)), new(int64(172800))
	vm.MaxRunSeconds, vm.MaxRunTotalSeconds, vm.AutomaticRestart = new(int64(7200)), new(int64(360000)), false
	vm.NextPauseAt, vm.NextPauseReason = new(moment().Add(14*time.Minute)), new("idleTimeoutSeconds")
	vm.NextDeleteAt, vm.NextDeleteReason = new(moment().Add(47*time.Hour)), new("ttlSeconds")
	return vm
}

func exampleSnapshot() api.Snapshot {
	return api.Snapshot{
		ID: "sh-0a1b2c3d4e5f60718293a4b5c6d7e8f9", AutoDeleteSeconds: new(int64(86400)), SourceVMID: new(exampleVM().ID), SourceVMSlug: new("web"), Slug: new("prepared"),
		Resources: exampleVM().Resources, Image: new("pando/debian"), Bytes: 210 << 20, CreatedAt: moment(), UpdatedAt: moment(),
	}
}

func exampleExecs() []api.Exec {
	return []api.Exec{
		{
			ID: "exec-7c9e6679-7425-40de-944b-e07fc1f90ae7", Command: "npm run dev", State: api.ExecRunning, PID: 412,
			StartedAt: moment().Add(-time.Hour), StdoutBytes: 12_345,
		},
		{
			ID: "exec-1b4e28ba-2fa1-11d2-883f-0016d3cca427", Command: "make test", LinuxUser: "root", State: api.ExecExited, PID: 377,
			StatusCode: new(2), StartedAt: moment().Add(-2 * time.Hour), EndedAt: new(moment().Add(-time.Hour)), StdoutBytes: 3, StderrBytes: 4,
		},
	}
}

func exampleProcesses() []api.Process {
	return []api.Process{
		{PID: 1, User: "root", State: "sleeping", CPUTimeMs: 3210, RSSBytes: 12 << 20, StartedAt: moment().Add(-24 * time.Hour), Command: "/sbin/init"},
		{
			PID: 412, ParentPID: 300, User: "agent", State: "running", CPUTimeMs: 15, RSSBytes: 2 << 20, StartedAt: moment().Add(-time.Hour),
			Command: "/bin/bash -c npm run dev", ExecID: &exampleExecs()[0].ID,
		},
	}
}

func exampleSnapshotResponse() api.CreateSnapshotResponse {
	s := exampleSnapshot()
	return api.CreateSnapshotResponse{SnapshotID: s.ID, SourceVMID: *s.SourceVMID, Snapshot: s, PauseMs: 24.2}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	commands := []string{
		"", "vm", "vm create", "vm ls", "vm get", "vm update", "vm start", "vm stop", "vm pause", "vm fork", "vm resize", "vm snapshot", "vm exec", "vm shell", "vm sessions", "vm ps", "vm logs", "vm attach", "vm agent", "vm agent upgrade", "vm rm",
		"vm cp", "vm fs", "vm fs ls", "vm fs stat", "vm fs cat", "vm fs write", "vm fs mkdir", "vm fs rm", "vm fs mv", "vm fs chmod", "vm fs chown", "vm fs watch",
		"snapshot", "snapshot create", "snapshot ls", "snapshot get", "snapshot update", "snapshot rm", "image", "image build", "image ls", "image show", "image rm", "limits", "top", "man", "doctor", "serve", "version",
		"firewall", "firewall create", "firewall ls", "firewall get", "firewall rm",
	}
	for _, command := range commands {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			if code := l.run(t.Context(), append(strings.Fields(command), "--help")...); code != 0 || l.err.Len() > 0 {
				t.Fatalf("exit %d, stderr %q", code, l.err.String())
			}
			golden(t, "help/"+strings.Join(append([]string{"pando"}, strings.Fields(command)...), "-"), l.out.String())
		})
	}
}

func TestEveryCommandIsInTheHelpTest(t *testing.T) {
	t.Parallel()
	var walk func(path string) []string
	l := newLab(t, nil)
	root := cli.New(l.Deps)
	if *update { // TestHelp is writing the files
		return
	}
	walk = func(path string) []string {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil {
			t.Fatalf("find %q: %v", path, err)
		}
		var missing []string
		for _, c := range cmd.Commands() {
			sub := strings.TrimSpace(path + " " + c.Name())
			if _, err := readGolden("help/pando-" + strings.ReplaceAll(sub, " ", "-")); err != nil {
				missing = append(missing, sub)
			}
			missing = append(missing, walk(sub)...)
		}
		return missing
	}
	if missing := walk(""); len(missing) > 0 {
		t.Errorf("no golden help of: %v", missing)
	}
}

func TestVersionJSON(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	if code := l.run(t.Context(), "version", "--json"); code != 0 {
		t.Fatalf("exit %d: %s", code, l.err.String())
	}
	var got map[string]string
	if err := json.Unmarshal(l.out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got["version"] != "v1.2.3" {
		t.Errorf("version = %v", got)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		checks []cli.Check
		args   []string
		code   int
	}{
		"doctor-good": {
			[]cli.Check{
				{Name: "qemu", Status: cli.CheckOK, Detail: "qemu-system-x86_64 7.2.22"},
				{Name: "kvm", Status: cli.CheckWarn, Detail: "this host has none: VMs are emulated", Fix: "use a host with VT-x or AMD-V"},
			},
			[]string{"doctor"},
			0,
		},
		"doctor-bad": {
			[]cli.Check{{Name: "qemu-img", Status: cli.CheckFail, Detail: "not found", Fix: "apt-get install qemu-utils"}},
			[]string{"doctor", "--quick"},
			1,
		},
		"doctor-bad-json": {
			[]cli.Check{{Name: "qemu-img", Status: cli.CheckFail, Detail: "not found", Fix: "apt-get install qemu-utils"}},
			[]string{"doctor", "--quick", "--json"},
			1,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			l.Doctor = fakeDoctor(tt.checks)
			code := l.run(t.Context(), tt.args...)
			if code != tt.code {
				t.Errorf("exit %d, want %d", code, tt.code)
			}
			golden(t, name, l.transcript(code, tt.args))
		})
	}
}

func TestServeGetsItsOptions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		want cli.ServeOptions
	}{
		"defaults": {nil, cli.ServeOptions{Listen: "127.0.0.1:7878", Data: "/var/lib/pando", Spares: 1}},
		"all": {
			[]string{"--listen", ":80", "--data", "/d", "--stop-vms", "--spares", "3", "--json"},
			cli.ServeOptions{Listen: ":80", Data: "/d", StopVMs: true, Spares: 3, JSONLog: true},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			var got cli.ServeOptions
			l.Serve = func(_ context.Context, o cli.ServeOptions) error { got = o; return nil }
			if code := l.run(t.Context(), append([]string{"serve"}, tt.args...)...); code != 0 {
				t.Fatalf("exit %d: %s", code, l.err.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestServeEnds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err  error
		code int
		want string
	}{
		"well":                      {nil, 0, ""},
		"before it was up":          {fmt.Errorf("open store: %w", context.Canceled), 130, "pando: interrupted\n"},
		"with a failure of its own": {errors.New("stop vm web: it does not end"), 1, "pando: stop vm web: it does not end\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancel(t.Context())
			l := newLab(t, nil)
			l.Serve = func(context.Context, cli.ServeOptions) error { interrupt(); return tt.err }
			if code := l.run(ctx, "serve"); code != tt.code || l.err.String() != tt.want {
				t.Errorf("exit %d, stderr %q; want %d, %q", code, l.err.String(), tt.code, tt.want)
			}
		})
	}
}

func TestNamesCannotDriveTheTerminal(t *testing.T) {
	t.Parallel()
	vm := exampleVM()
	vm.DisplayName = new("a\x1b[2Jb\nc\u202ed")
	l := newLab(t, reply(t, http.StatusOK, vm))
	if code := l.run(t.Context(), "vm", "get", "web"); code != 0 {
		t.Fatalf("exit %d: %s", code, l.err.String())
	}
	if !strings.Contains(l.out.String(), "a?[2Jb?c?d\n") {
		t.Errorf("output = %q", l.out.String())
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	vm := exampleVM()
	vm.Slug = new(strings.Repeat("s", 63))
	l := newLab(t, reply(t, http.StatusOK, api.VMList{VMs: []api.VM{vm}}))
	l.IO = &cli.IOStreams{In: strings.NewReader(""), Out: &l.out, Err: &l.err, OutTerminal: true, Width: 110}
	if code := l.run(t.Context(), "vm", "ls"); code != 0 {
		t.Fatalf("exit %d: %s", code, l.err.String())
	}
	for line := range strings.Lines(l.out.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 110 {
			t.Errorf("line of %d columns: %s", n, line)
		}
	}
	if !strings.Contains(l.out.String(), "…") {
		t.Errorf("nothing was cut off:\n%s", l.out.String())
	}
}
