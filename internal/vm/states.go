package vm

import (
	"slices"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// transitions is the whole life of a VM:
//
//	        restore, fork
//	              │
//	              ▼     confirmed             ordered
//	   ┌───────starting ─────────▶ running ───────────▶ pausing
//	   │          ▲  ▲              ▲  │  ▲                │ │
//	   │ failed   │  │              │  │  └────────────────┘ │ saved
//	   │          │  └──resume──┐   │  │     not saved       ▼
//	   │   boot   │             └───┼──┼───────────────── paused
//	   ▼          │                 │  │ powered off, crashed │
//	stopped ──────┘                 │  ▼                      │
//	   ▲                            │ stopped                 │
//	   └────────────────────────────┴──────────── stop ───────┘
//
// Delete is no state: it works from each of them and leaves nothing.
func transitions() map[api.State][]api.State {
	return map[api.State][]api.State{
		api.StateStarting: {api.StateRunning, api.StatePaused, api.StateStopped},
		api.StateRunning:  {api.StatePausing, api.StateStopped, api.StateStarting},
		api.StatePausing:  {api.StatePaused, api.StateRunning, api.StateStopped},
		api.StatePaused:   {api.StateStarting, api.StateStopped},
		api.StateStopped:  {api.StateStarting},
	}
}

// States lists every state, in the order of a VM's life.
func States() []api.State {
	return []api.State{
		api.StateStarting, api.StateRunning, api.StatePausing, api.StatePaused, api.StateStopped,
	}
}

// CanEnter reports whether the table allows going from one state to another.
func CanEnter(from, to api.State) bool {
	return slices.Contains(transitions()[from], to)
}

// enter moves the record to a state, or says why it cannot.
func (v *VM) enter(to api.State, reason string) error {
	if !CanEnter(v.State, to) {
		return wrongState(*v, verbs()[to])
	}
	v.State, v.StateReason = to, reason
	return nil
}

// verbs names the operation that leads to a state, for errors.
func verbs() map[api.State]string {
	return map[api.State]string{
		api.StateStarting: "start", api.StateRunning: "start", api.StatePausing: "pause",
		api.StatePaused: "pause", api.StateStopped: "stop",
	}
}

// wrongState is the error of an operation that the VM's state does not allow.
func wrongState(v VM, operation string) *fault.Error {
	return fault.Conflict(api.ReasonWrongState, "vm %s is %s: %s is not possible now", v.ID, v.State, operation).
		Hint("%s", remedyFor(v.State, v.ID))
}

func remedyFor(s api.State, id string) string {
	switch s {
	case api.StateStopped, api.StatePaused:
		return "start it first: pando vm start " + id
	case api.StateStarting, api.StatePausing:
		return "wait until it has settled: pando vm get " + id
	case api.StateRunning:
		return "pause or stop it first: pando vm pause " + id
	}
	return "look at it: pando vm get " + id
}
