package vm

import (
	"fmt"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/field"
)

// Timers bound the life of a VM; nil is no bound. All are whole seconds.
type Timers struct {
	// Idle is how long a running VM may be unused before it is paused.
	Idle *time.Duration
	// AutoDelete is how long a VM may not run before it is deleted; 0 deletes it
	// the moment it stops.
	AutoDelete *time.Duration
	// TTL is how long after its creation a VM is deleted.
	TTL *time.Duration
	// MaxRun is how long one run may last, MaxRunTotal all runs together, before
	// the VM is paused.
	MaxRun, MaxRunTotal *time.Duration
}

// TimerChanges are new values in seconds, as clients send them: nil leaves a
// timer as it is, -1 removes it.
type TimerChanges struct{ Idle, AutoDelete, TTL, MaxRun, MaxRunTotal *int64 }

// The names of the timers, as clients know them.
const (
	fieldIdle        = "idleTimeoutSeconds"
	fieldAutoDelete  = "autoDeleteSeconds"
	fieldTTL         = "ttlSeconds"
	fieldMaxRun      = "maxRunSeconds"
	fieldMaxRunTotal = "maxRunTotalSeconds"
)

func (c TimerChanges) check() error {
	for _, f := range []struct {
		name  string
		value *int64
		least int64
	}{
		{fieldIdle, c.Idle, 1},
		{fieldAutoDelete, c.AutoDelete, 0},
		{fieldTTL, c.TTL, 1},
		{fieldMaxRun, c.MaxRun, 1},
		{fieldMaxRunTotal, c.MaxRunTotal, 1},
	} {
		if err := field.CheckSeconds(f.name, f.value, f.least); err != nil {
			return err
		}
	}
	return nil
}

// apply changes t as asked for.
func (c TimerChanges) apply(t *Timers) {
	field.SetTimer(&t.Idle, c.Idle)
	field.SetTimer(&t.AutoDelete, c.AutoDelete)
	field.SetTimer(&t.TTL, c.TTL)
	field.SetTimer(&t.MaxRun, c.MaxRun)
	field.SetTimer(&t.MaxRunTotal, c.MaxRunTotal)
}

// ephemeral reports whether the VM is deleted the moment it stops.
func (v VM) ephemeral() bool { return v.Timers.AutoDelete != nil && *v.Timers.AutoDelete == 0 }

// Due is a moment at which a timer acts; a zero At means never.
type Due struct {
	At time.Time
	// Timer is the name of the field that set it, for example "ttlSeconds".
	Timer string
	// reason is what the state then says.
	reason string
}

// passed reports whether the moment has come.
func (d Due) passed(now time.Time) bool { return !d.At.IsZero() && !now.Before(d.At) }

// before is the earlier of two moments.
func (d Due) before(other Due) Due {
	if d.At.IsZero() || !other.At.IsZero() && other.At.Before(d.At) {
		return other
	}
	return d
}

// Outlook is what the timers will do to a VM if nothing else happens to it.
type Outlook struct{ Pause, Delete Due }

// outlook derives the moments from the record. lastUse is when the VM was last
// used; it is zero while somebody uses it.
func (v VM) outlook(lastUse time.Time) Outlook {
	var o Outlook
	if v.State == api.StateRunning {
		o.Pause = v.idleDue(lastUse).before(v.runDue()).before(v.totalDue())
	}
	o.Delete = v.ttlDue().before(v.restDue())
	return o
}

func (v VM) idleDue(lastUse time.Time) Due {
	idle := v.Timers.Idle
	if idle == nil || lastUse.IsZero() {
		return Due{}
	}
	return Due{lastUse.Add(*idle), fieldIdle, fmt.Sprintf("idle for %s", seconds(*idle))}
}

func (v VM) runDue() Due {
	if v.Timers.MaxRun == nil || v.RunningSince.IsZero() {
		return Due{}
	}
	return Due{v.RunningSince.Add(*v.Timers.MaxRun), fieldMaxRun, fmt.Sprintf("ran for %s (%s)", seconds(*v.Timers.MaxRun), fieldMaxRun)}
}

func (v VM) totalDue() Due {
	if v.Timers.MaxRunTotal == nil || v.RunningSince.IsZero() {
		return Due{}
	}
	left := *v.Timers.MaxRunTotal - v.RunTime
	return Due{v.RunningSince.Add(left), fieldMaxRunTotal, fmt.Sprintf("ran for %s in all its runs (%s)", seconds(*v.Timers.MaxRunTotal), fieldMaxRunTotal)}
}

func (v VM) ttlDue() Due {
	if v.Timers.TTL == nil {
		return Due{}
	}
	return Due{v.CreatedAt.Add(*v.Timers.TTL), fieldTTL, fmt.Sprintf("created %s ago (%s)", seconds(*v.Timers.TTL), fieldTTL)}
}

// restDue is when a VM that does not run is deleted. A pause does not end the
// life of an ephemeral VM, and neither does a crash that it is restarted after.
func (v VM) restDue() Due {
	rest := v.Timers.AutoDelete
	if rest == nil || v.RestingSince.IsZero() || !v.RestartAt.IsZero() || v.ephemeral() && v.State != api.StateStopped {
		return Due{}
	}
	return Due{v.RestingSince.Add(*rest), fieldAutoDelete, fmt.Sprintf("did not run for %s (%s)", seconds(*rest), fieldAutoDelete)}
}

// spent reports whether the VM has used up the time that it may run.
func (v VM) spent(now time.Time) bool {
	return v.Timers.MaxRunTotal != nil && v.TotalRunTime(now) >= *v.Timers.MaxRunTotal
}

// checkBudget refuses to start a VM that may not run any more.
func (v VM) checkBudget(now time.Time) error {
	if !v.spent(now) {
		return nil
	}
	f := fault.Conflict(api.ReasonRunBudgetSpent, "vm %s has run for %s, which is all that %s allows", v.ID, seconds(*v.Timers.MaxRunTotal), fieldMaxRunTotal)
	f.Field = fieldMaxRunTotal
	return f.Hint("raise it: pando vm update %s --max-run-total SECONDS", v.ID)
}

// seconds writes a duration the way clients give it.
func seconds(d time.Duration) string { return fmt.Sprintf("%d s", int64(d/time.Second)) }
