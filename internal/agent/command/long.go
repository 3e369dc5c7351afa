package command

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/process"
	"github.com/pandovm/pando/internal/link"
)

// longCommand makes a shell run the text that it finds at descriptor 3, as it
// would run it as an argument. The text's own commands do not see the descriptor.
const longCommand = `pando_text=$(cat <&3) && exec 3<&- && eval "$pando_text"`

// runLong returns the command for a text that is too long for an argument. The
// caller closes Extra.
func runLong(a process.Account, o *link.Order) (*process.Command, error) {
	fd, err := unix.MemfdCreate("command", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	for p := []byte(o.Command); len(p) > 0 && err == nil; {
		var n int
		if n, err = syscall.Write(fd, p); err == nil {
			p = p[n:]
		}
	}
	if err == nil {
		_, err = syscall.Seek(fd, 0, 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write command: %w", err), syscall.Close(fd))
	}
	c := a.Run(longCommand, o.Env)
	c.Extra = []int{fd}
	return c, nil
}
