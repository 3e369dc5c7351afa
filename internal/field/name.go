package field

import (
	"regexp"

	"github.com/pandovm/pando/internal/fault"
)

// The limits of names, in bytes.
const (
	MaxSlug        = 63
	MaxDisplayName = 255
)

// CheckSlug refuses what is no slug. It accepts "", which means none.
func CheckSlug(slug string) error {
	const grammar = `^[a-z0-9]+(-[a-z0-9]+)*$`
	if slug == "" {
		return nil
	}
	if len(slug) > MaxSlug || !regexp.MustCompile(grammar).MatchString(slug) {
		return fault.BadField("slug", "%q is not 1 to %d characters of a-z, 0-9 and single hyphens inside", clip(slug), MaxSlug).
			Hint(`use something like "build-7"`)
	}
	return nil
}

// CheckDisplayName refuses a label that is too long.
func CheckDisplayName(name string) error {
	if len(name) > MaxDisplayName {
		return fault.BadField("displayName", "%d bytes is more than %d", len(name), MaxDisplayName).Hint("shorten it")
	}
	return nil
}

// clip bounds what an error repeats of the request.
func clip(s string) string { return s[:min(len(s), 100)] }
