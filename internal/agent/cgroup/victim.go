package cgroup

import (
	"errors"
	"strconv"
	"strings"
	"syscall"

	"github.com/pandovm/pando/internal/agent/sysfile"
)

const (
	// maxRecord is the kernel's bound on a record of its log as it is read.
	maxRecord = 8 << 10
	// maxRecords bounds how much of the log one look reads.
	maxRecords = 20000
)

// victim returns the name of the process that the kernel says it has killed
// last in the group called name, or last of all where it does not say the group:
// when it kills often it leaves that out.
func (t *Tree) victim(name string) string {
	fd, err := sysfile.Open("/dev/kmsg", syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = syscall.Close(fd) }()
	t.mu.Lock()
	defer t.mu.Unlock()
	var log killLog
	log.group, log.after = name, t.seen
	buf := make([]byte, maxRecord)
	for range maxRecords {
		n, err := syscall.Read(fd, buf)
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EINTR) {
			continue // the record was overwritten before it could be read
		}
		if err != nil || n <= 0 {
			break
		}
		log.take(string(buf[:n]))
	}
	t.seen = log.last
	if log.inGroup != "" {
		return log.inGroup
	}
	return log.anywhere
}

// killLog finds killed processes among the records of the kernel's log.
type killLog struct {
	// group is the group of interest, after the last record of no interest.
	group string
	after uint64
	// last is the newest record that tells of a kill.
	last uint64
	// inGroup and anywhere are the names of the last process killed there.
	inGroup, anywhere string
}

// take looks at one record: "priority,number,…;text".
func (l *killLog) take(record string) {
	head, text, ok := strings.Cut(record, ";")
	text, _, _ = strings.Cut(text, "\n")
	_, rest, _ := strings.Cut(head, ",")
	number, _, _ := strings.Cut(rest, ",")
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || n <= l.after {
		return
	}
	if group, process, ok := parseKill(text); ok {
		l.last = n
		if group == l.group {
			l.inGroup = process
		}
		return
	}
	if process, ok := parseKilled(text); ok {
		l.last, l.anywhere = n, process
	}
}

// parseKill reads "oom-kill:constraint=…,task_memcg=GROUP,task=NAME,pid=…". A
// name may contain all of these words, a group may not.
func parseKill(text string) (group, process string, ok bool) {
	if !strings.HasPrefix(text, "oom-kill:") {
		return "", "", false
	}
	_, text, _ = strings.Cut(text, ",task_memcg=")
	group, text, ok = strings.Cut(text, ",task=")
	end := strings.LastIndex(text, ",pid=")
	if !ok || end < 0 {
		return "", "", false
	}
	return group, text[:end], true
}

// parseKilled reads "Memory cgroup out of memory: Killed process PID (NAME)
// total-vm:…" and the like.
func parseKilled(text string) (process string, ok bool) {
	_, text, ok = strings.Cut(text, "Killed process ")
	_, text, _ = strings.Cut(text, " (")
	end := strings.LastIndex(text, ") total-vm:")
	if !ok || end < 0 {
		return "", false
	}
	return text[:end], true
}
