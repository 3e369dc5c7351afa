package field

import (
	"time"

	"github.com/pandovm/pando/internal/fault"
)

// MaxTimer bounds every timer: a hundred years.
const MaxTimer = 100 * 365 * 24 * time.Hour

// CheckSeconds refuses a number of seconds that is neither -1 nor between least
// and MaxTimer. Nil is no number and passes.
func CheckSeconds(field string, seconds *int64, least int64) error {
	most := int64(MaxTimer / time.Second)
	if seconds == nil || *seconds == -1 || *seconds >= least && *seconds <= most {
		return nil
	}
	return fault.BadField(field, "%d is neither -1 nor between %d and %d", *seconds, least, most).Hint("use -1 for no limit")
}

// SetTimer changes a timer to a checked number of seconds: nil leaves it as it is,
// -1 removes it.
func SetTimer(timer **time.Duration, seconds *int64) {
	switch {
	case seconds == nil:
	case *seconds == -1:
		*timer = nil
	default:
		*timer = new(time.Duration(*seconds) * time.Second)
	}
}

// Seconds is the length of a timer; nil for one that does not exist.
func Seconds(timer *time.Duration) *int64 {
	if timer == nil {
		return nil
	}
	return new(int64(*timer / time.Second))
}
