package command

import (
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/pandovm/pando/internal/fault"
)

// The limits that apply to requests. GET /openapi.json shows them.
const (
	MaxStdinBytes   = 1 << 20
	MaxCommandBytes = 1 << 20
	// MaxOutputBytes bounds each of stdout and stderr in the answer of a command
	// that was waited for.
	MaxOutputBytes = 1 << 20
	DefaultTimeout = 30 * time.Second
	MaxTimeout     = 24 * time.Hour
	// MaxEnvBytes bounds the whole environment, names and values.
	MaxEnvBytes = 512 << 10
	// MaxArgumentBytes bounds one environment entry: the kernel takes no more.
	MaxArgumentBytes = 128<<10 - 1
	// KeptOutputBytes is how much output of one command the guest keeps, and
	// KeptTotalBytes of all; small guests keep less. KeptFor is for how long, and
	// KeptCommands how many ended commands can be looked up.
	KeptOutputBytes = 64 << 20
	KeptTotalBytes  = 256 << 20
	KeptFor         = 24 * time.Hour
	KeptCommands    = 4096
)

func check(o Order) error {
	switch {
	case o.Command == "":
		return fault.BadField("command", "is empty").Hint("give a shell command")
	case len(o.Command) > MaxCommandBytes:
		return fault.BadField("command", "%d bytes is more than %d", len(o.Command), MaxCommandBytes).Hint("send a script on stdin")
	case strings.IndexByte(o.Command, 0) >= 0:
		return fault.BadField("command", "has a NUL byte").Hint("no program can take one in its arguments: send such data on stdin")
	case o.Timeout < 0 || o.Timeout > MaxTimeout:
		return fault.BadField("timeoutMs", "%d is not between 1 and %d", o.Timeout.Milliseconds(), MaxTimeout.Milliseconds()).
			Hint("leave it out for the default")
	case len(o.Stdin) > MaxStdinBytes:
		return fault.BadField("stdin", "%d bytes is more than %d", len(o.Stdin), MaxStdinBytes).
			Hint("start the command with openStdin and stream the input")
	}
	if err := checkUser(o.User); err != nil {
		return err
	}
	return checkEnv(o.Env)
}

func checkUser(name string) error {
	if name != "" && (len(name) > 32 || !regexp.MustCompile(`^[a-z_][a-z0-9_-]*$`).MatchString(name)) {
		return fault.BadField("linuxUser", "%.40q is not a user name", name).
			Hint("name a user of the guest's /etc/passwd, or leave it out")
	}
	return nil
}

func checkEnv(env map[string]string) error {
	name := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	total := 0
	for k, v := range env {
		total += len(k) + len(v) + 2
		switch {
		case !name.MatchString(k):
			return fault.BadField("env", "%.100q is not a POSIX variable name", k).Hint("use letters, digits and underscores")
		case strings.IndexByte(v, 0) >= 0:
			return fault.BadField("env", "the value of %s has a NUL byte", clip(k)).Hint("no environment can hold one")
		case len(k)+len(v)+1 > MaxArgumentBytes:
			return fault.BadField("env", "%s has more than %d bytes", clip(k), MaxArgumentBytes).Hint("write it to a file")
		}
	}
	if total > MaxEnvBytes {
		return fault.BadField("env", "%d bytes in all is more than %d", total, MaxEnvBytes).Hint("write some of it to a file")
	}
	return nil
}

func clip(s string) string { return s[:min(len(s), 100)] }

// ParseSignal reads a signal's name, with or without SIG, or its number.
func ParseSignal(s string) (syscall.Signal, error) {
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	for number, known := range signalNames() {
		if name != "" && known == name {
			return syscall.Signal(number), nil
		}
	}
	if n, ok := signalNumber(name); ok {
		return n, nil
	}
	return 0, fault.BadField("signal", "%.40q is not a signal", s).Hint(`use a name such as "TERM", "INT", "HUP" or "KILL", or a number from 1 to 64`)
}

func signalNumber(s string) (syscall.Signal, bool) {
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' || n > 64 {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return syscall.Signal(n), n >= 1 && n <= 64
}

// signalNames are the names of Linux on x86-64, by number.
func signalNames() []string {
	return []string{
		"", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
		"STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
	}
}
