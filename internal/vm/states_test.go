package vm_test

import (
	"slices"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/vm"
)

// The whole table, said a second time: a transition that is added or lost by
// accident is seen here.
func TestTransitions(t *testing.T) {
	t.Parallel()
	allowed := map[api.State][]api.State{
		api.StateStarting: {api.StateRunning, api.StatePaused, api.StateStopped},
		api.StateRunning:  {api.StateStarting, api.StatePausing, api.StateStopped},
		api.StatePausing:  {api.StateRunning, api.StatePaused, api.StateStopped},
		api.StatePaused:   {api.StateStarting, api.StateStopped},
		api.StateStopped:  {api.StateStarting},
	}
	for _, from := range vm.States() {
		for _, to := range vm.States() {
			if got, want := vm.CanEnter(from, to), slices.Contains(allowed[from], to); got != want {
				t.Errorf("CanEnter(%s, %s) is %v, want %v", from, to, got, want)
			}
		}
	}
}

// From every state there is a way to stopped, and from there a way to running.
func TestNoStateIsATrap(t *testing.T) {
	t.Parallel()
	for _, s := range vm.States() {
		if !reaches(s, api.StateRunning, map[api.State]bool{}) || !reaches(s, api.StateStopped, map[api.State]bool{}) {
			t.Errorf("a vm that is %s cannot get out of it", s)
		}
	}
}

func reaches(from, to api.State, seen map[api.State]bool) bool {
	if from == to {
		return true
	}
	seen[from] = true
	for _, next := range vm.States() {
		if vm.CanEnter(from, next) && !seen[next] && reaches(next, to, seen) {
			return true
		}
	}
	return false
}
