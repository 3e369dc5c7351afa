package agent

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/link"
)

// warmTimeout bounds the command of warm.
const warmTimeout = 10 * time.Second

// warm runs a command through the same code as a host's. Whatever that touches,
// in the agent, the shell and the kernel, is then in memory when a snapshot is
// taken, and not on disk when the VM is restored.
func (s *Server) warm(ctx context.Context) {
	order, _ := link.Order{Command: "true", Timeout: warmTimeout, MaxOutput: 1}.MarshalBinary()
	body := link.AppendFrame(nil, link.FrameOrder, order)
	done := make(chan struct{})
	conn := http2.NewConn(func(st *http2.Stream) {
		s.serve(ctx, st)
		close(done)
	})
	defer conn.Close(http2.ErrClosed)
	if conn.Feed(http2.AppendRequest(nil, 1, link.PathExec, body)) != nil {
		return
	}
	<-done
	conn.Take(nil)
}

// ResideInMemory maps all of the program's code and constants in.
func ResideInMemory() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) != 6 || f[5] != exe {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 == nil && err2 == nil {
			// Kernels before 5.14 refuse it: then the first use maps it in.
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), unix.MADV_POPULATE_READ)
		}
	}
}
