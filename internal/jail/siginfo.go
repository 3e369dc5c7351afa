package jail

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// childInfo is the kernel's siginfo_t as waitid fills it for a child on 64-bit
// Linux; unix.Siginfo hides these fields.
type childInfo struct {
	signo, errno, code int32
	_                  int32
	pid                int32
	uid                uint32
	status             int32
	_                  [100]byte
}

const (
	codeExited = 1 // CLD_EXITED
)

func (c *childInfo) siginfo() *unix.Siginfo {
	return (*unix.Siginfo)(unsafe.Pointer(c))
}

func (c *childInfo) exit() Exit {
	if c.pid == 0 { // nothing was reaped
		return Exit{}
	}
	if c.code == codeExited {
		return Exit{Known: true, Code: int(c.status)}
	}
	return Exit{Known: true, Signal: unix.Signal(c.status)}
}

// The two must be of one size, or the kernel writes past the end of ours.
var _ [unsafe.Sizeof(unix.Siginfo{})]byte = [unsafe.Sizeof(childInfo{})]byte{}
