package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
)

// never is the value of a timer's flag that means none.
const never = "never"

// timerFlag is a timer on the command line: "90s", "2h", a number of seconds,
// or "never". Seconds is nil until it is given.
type timerFlag struct{ seconds *int64 }

// Set implements the flag package's Value.
func (f *timerFlag) Set(text string) error {
	if text == never {
		f.seconds = new(int64(-1))
		return nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		f.seconds = &n
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d%time.Second != 0 {
		return fmt.Errorf(`want whole seconds such as 90s, 30m or 36h, or "never"`)
	}
	f.seconds = new(int64(d / time.Second))
	return nil
}

// String implements the flag package's Value.
func (f *timerFlag) String() string { return "" }

// Type implements the flag package's Value.
func (f *timerFlag) Type() string { return "duration" }

// timerFlags are the timers of a VM.
type timerFlags struct {
	idle, autoDelete, ttl, maxRun, maxRunTotal timerFlag
	ephemeral                                  bool
}

func (t *timerFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(&t.idle, "idle-timeout", "pause it after so `long` without use: 90s, 30m, or never")
	f.Var(&t.autoDelete, "auto-delete", "delete it after so `long` without running")
	f.BoolVar(&t.ephemeral, "ephemeral", false, "delete it the moment it stops: --auto-delete 0")
	f.Var(&t.ttl, "ttl", "delete it so `long` after its creation")
	f.Var(&t.maxRun, "max-run", "pause it when one run has lasted so `long`")
	f.Var(&t.maxRunTotal, "max-run-total", "pause it for good when all its runs have lasted so `long`")
}

func (t *timerFlags) check() error {
	if t.ephemeral && t.autoDelete.seconds != nil {
		return &usageError{message: "--ephemeral and --auto-delete: want one of them"}
	}
	if t.ephemeral {
		t.autoDelete.seconds = new(int64(0))
	}
	return nil
}

// addTimers says what bounds the life of a VM and what comes of it next.
func (a *app) addTimers(b *block, vm api.VM) {
	b.add("Idle timeout", length(vm.IdleTimeoutSeconds))
	b.add("Max run", length(vm.MaxRunSeconds))
	b.add("Max run total", length(vm.MaxRunTotalSeconds))
	if after := vm.AutoDeleteSeconds; after != nil && *after == 0 {
		b.add("Auto delete", "when it stops")
	} else {
		b.add("Auto delete", length(after))
	}
	b.add("TTL", length(vm.TTLSeconds))
	if vm.NextPauseAt != nil {
		b.add("Next pause", a.future(*vm.NextPauseAt, text(vm.NextPauseReason)))
	}
	if vm.NextDeleteAt != nil {
		b.add("Next delete", a.future(*vm.NextDeleteAt, text(vm.NextDeleteReason)))
	}
	if !vm.AutomaticRestart {
		b.add("Restart", "not after a crash")
	}
}

// length shows a number of seconds; nothing if there is none.
func length(seconds *int64) string {
	if seconds == nil {
		return ""
	}
	return (time.Duration(*seconds) * time.Second).String()
}

// future is t in the time zone of the clock, with the time until then and the
// timer that is the reason.
func (a *app) future(t time.Time, timer string) string {
	left := max(0, t.Sub(a.Now())).Round(time.Second)
	return fmt.Sprintf("%s (in %s: %s)", t.In(a.Now().Location()).Format(time.DateTime), left, timer)
}
