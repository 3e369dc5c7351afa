package snapshot

import (
	"time"

	"github.com/pandovm/pando/internal/field"
)

// CheckTimers refuses numbers of seconds that are neither -1 nor at least 1; nil
// is no number.
func CheckTimers(autoDelete, ttl *int64) error {
	if err := field.CheckSeconds("autoDeleteSeconds", autoDelete, 1); err != nil {
		return err
	}
	return field.CheckSeconds("ttlSeconds", ttl, 1)
}

// SetTimers changes the timers to that many seconds: nil leaves one as it is,
// -1 removes it.
func (s *Snapshot) SetTimers(autoDelete, ttl *int64) {
	field.SetTimer(&s.AutoDelete, autoDelete)
	field.SetTimer(&s.TTL, ttl)
}

// DeleteAt is when the timers delete the snapshot if it is not used before;
// zero means never. Base images have no timers.
func (s Snapshot) DeleteAt() time.Time {
	var at time.Time
	if s.TTL != nil {
		at = s.CreatedAt.Add(*s.TTL)
	}
	if s.AutoDelete == nil {
		return at
	}
	used := s.CreatedAt
	if s.LastUsedAt.After(used) {
		used = s.LastUsedAt
	}
	if unused := used.Add(*s.AutoDelete); at.IsZero() || unused.Before(at) {
		return unused
	}
	return at
}
