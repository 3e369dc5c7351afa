package vm

import (
	"regexp"
	"time"

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
	MaxStdinBytes      = 1 << 20
	MaxCommandBytes    = 1 << 20
	// MaxOutputBytes bounds each of stdout and stderr in an answer.
	MaxOutputBytes     = 8 << 20
	DefaultExecTimeout = 30 * time.Second
	MaxExecTimeout     = 24 * time.Hour
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

func checkExec(p ExecParams) error {
	switch {
	case p.Command == "":
		return fault.BadField("command", "is empty").Hint("give a shell command")
	case len(p.Command) > MaxCommandBytes:
		return fault.BadField("command", "%d bytes is more than %d", len(p.Command), MaxCommandBytes).Hint("send a script on stdin")
	case p.Timeout < 0 || p.Timeout > MaxExecTimeout:
		return fault.BadField("timeoutMs", "%d is not between 1 and %d", p.Timeout.Milliseconds(), MaxExecTimeout.Milliseconds()).
			Hint("leave it out for %d", DefaultExecTimeout.Milliseconds())
	case len(p.Stdin) > MaxStdinBytes:
		return fault.BadField("stdin", "%d bytes is more than %d", len(p.Stdin), MaxStdinBytes).Hint("write a file in the vm instead")
	}
	return checkEnv(p.Env)
}

func checkEnv(env map[string]string) error {
	name := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	for k := range env {
		if !name.MatchString(k) {
			return fault.BadField("env", "%q is not a POSIX variable name", k).Hint("use letters, digits and underscores")
		}
	}
	return nil
}
