package vm

import (
	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/field"
)

// The limits that apply to requests. GET /openapi.json shows them.
const (
	MaxForkChildren    = 100
	MaxMetadataEntries = 64
	MaxMetadataLength  = 63
	MaxSlugLength      = field.MaxSlug
	MaxDisplayName     = field.MaxDisplayName
)

func checkMetadata(m map[string]string) error {
	if len(m) > MaxMetadataEntries {
		return fault.BadField("metadata", "%d entries are more than %d", len(m), MaxMetadataEntries).Hint("remove some entries")
	}
	for k, v := range m {
		if k == "" || len(k) > MaxMetadataLength || len(v) > MaxMetadataLength {
			return fault.BadField("metadata", "key %q or its value is empty or longer than %d bytes", k, MaxMetadataLength).
				Hint("shorten the key or the value")
		}
	}
	return nil
}

func checkIdentity(i api.Identity) error {
	switch i {
	case "", api.IdentityNew, api.IdentityKeep:
		return nil
	}
	return fault.BadField("identity", "%q is neither %q nor %q", i, api.IdentityNew, api.IdentityKeep).
		Hint(`leave it out for "new"`)
}

func checkCount(n int) error {
	if n < 1 || n > MaxForkChildren {
		return fault.BadField("count", "%d is not between 1 and %d", n, MaxForkChildren).
			Hint("fork in several calls for more children")
	}
	return nil
}
