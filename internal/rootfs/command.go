package rootfs

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// standardPath is where distributions keep programs. The folders of
// administration tools are in it, which an ordinary user's PATH lacks on Debian.
const standardPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// tools runs programs found in a search path.
type tools struct{ path string }

// command is a program run to its end. Its output is only of interest when it
// fails, or line by line as progress.
type command struct {
	name string
	args []string
	env  []string
	// line gets each line of output; may be nil.
	line func(string)
}

// keepLines is how much of the output an error shows.
const keepLines = 15

// run starts the program in its own process group, so that ctx's end reaches
// what it has started too; it gets ten seconds to undo its mounts.
func (t tools) run(ctx context.Context, c command) error {
	program, err := t.find(c.name)
	if err != nil {
		return fmt.Errorf("run %s: %w: install what is missing with: make setup", c.name, err)
	}
	cmd := exec.CommandContext(ctx, program, c.args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "PATH="+t.path)
	cmd.Env = append(cmd.Env, c.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second

	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	tail := make(chan []string, 1)
	go func() { tail <- c.follow(reader) }()
	err = cmd.Run()
	_ = writer.Close()
	lines := <-tail
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("run %s: %w", c.name, context.Cause(ctx))
	}
	return fmt.Errorf("run %s: %w: %s", c.name, err, strings.Join(lines, " | "))
}

// follow passes the lines on and returns the last ones.
func (c command) follow(r io.Reader) []string {
	var last []string
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), 1<<20)
	lines.Split(scanLines)
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		if c.line != nil {
			c.line(text)
		}
		if last = append(last, text); len(last) > keepLines {
			last = last[1:]
		}
	}
	// A line beyond the limit ends the scan; the program must not block on it.
	_, _ = io.Copy(io.Discard, r)
	return last
}

// scanLines splits at newlines and at the carriage returns of progress bars.
func scanLines(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexAny(data, "\r\n"); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// find looks a program up.
func (t tools) find(name string) (string, error) {
	for _, dir := range filepath.SplitList(t.path) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// ask returns what a program prints, or nothing if it fails.
func (t tools) ask(ctx context.Context, name string, args ...string) string {
	program, err := t.find(name)
	if err != nil {
		return ""
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "PATH="+t.path)
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return string(out)
}
