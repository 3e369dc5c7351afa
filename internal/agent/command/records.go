package command

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/pandovm/pando/internal/link"
)

// recordsName is the file of records: for each change of a command a FrameInfo,
// and behind it the FrameOutputs of what it printed if that is little. The last
// record of a command counts.
const recordsName = "records"

// maxRecords is the length at which the file is written anew even if it has
// nothing stale in it.
const maxRecords = 8 << 20

// recordFile is what is known of the file of records.
type recordFile struct {
	// stale: it has commands that are forgotten.
	stale   bool
	entries int
	size    int64
}

// recordSoon has the records written after a while. The caller holds mu.
func (s *Service) recordSoon() {
	if s.Dir == "" || s.writing {
		return
	}
	s.writing = true
	time.AfterFunc(recordDelay, s.record)
}

// record writes what has changed. A failure is nobody's to report to: the
// commands stay known as long as the agent runs.
func (s *Service) record() {
	s.load()
	s.mu.Lock()
	s.writing = false
	gone := s.expired(time.Now())
	if len(gone) > 0 {
		s.records.stale = true
	}
	list := append([]*execution(nil), s.ordered...)
	anew := s.records.stale && s.records.entries > 2*len(list)+64 || s.records.size > maxRecords
	s.mu.Unlock()
	for _, x := range gone {
		x.out.remove()
	}
	s.write(list, anew)
}

// write appends the records of the commands in list that changed, or writes all
// of them to a new file.
func (s *Service) write(list []*execution, anew bool) {
	var b []byte
	n := 0
	for _, x := range list {
		i := x.info()
		if x.isRecorded(i.State) && !anew {
			continue
		}
		var output []byte
		if i.State == link.ExecExited {
			output = x.out.settle(smallOutput)
		}
		body, _ := i.MarshalBinary()
		b = append(link.AppendFrame(b, link.FrameInfo, body), output...)
		n++
	}
	if n == 0 && !anew || s.disk().make() != nil {
		return
	}
	var err error
	if anew {
		err = s.replace(b)
	} else {
		err = s.extend(b)
	}
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if anew {
		s.records = recordFile{}
	}
	s.records.entries += n
	s.records.size += int64(len(b))
}

func (s *Service) extend(b []byte) error {
	f, err := s.shelf.open(recordsName, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

func (s *Service) replace(b []byte) error {
	const temporary = recordsName + ".new"
	f, err := s.shelf.open(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(s.shelf.path(temporary), s.shelf.path(recordsName))
	}
	return err
}

// isRecorded tells whether the file has that state, and notes that it soon will.
func (x *execution) isRecorded(state int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.recorded == state {
		return true
	}
	x.recorded = state
	return false
}

// load brings back what an earlier agent has recorded, once.
func (s *Service) load() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded || s.Dir == "" {
		return
	}
	s.loaded = true
	old := s.readRecords()
	var earlier []*execution
	for _, x := range old {
		if s.known[x.id] == nil {
			s.known[x.id] = x
			earlier = append(earlier, x)
		}
	}
	s.ordered = append(earlier, s.ordered...)
	s.removeStrangers()
}

// readRecords reads the file up to its end, or to where it is damaged, and
// returns the commands in the order of their first record.
func (s *Service) readRecords() []*execution {
	f, err := s.disk().open(recordsName, os.O_RDONLY)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	byID := map[string]*execution{}
	var list []*execution
	var last *execution
	frames := link.NewFrameReader(io.LimitReader(f, 4*maxRecords))
	for {
		t, payload, err := frames.Next()
		if err != nil {
			break
		}
		var i link.Info
		switch {
		case t == link.FrameInfo && i.UnmarshalBinary(payload) == nil && plausible(&i):
			if last = byID[i.ID]; last == nil {
				last = &execution{id: i.ID, ended: make(chan struct{}), in: new(input), reaped: true}
				close(last.ended)
				byID[i.ID] = last
				list = append(list, last)
			}
			last.revive(&i, s.shelf)
		case t == link.FrameOutput && last != nil && len(last.out.memory)+len(payload) <= 2*smallOutput:
			last.out.memory = link.AppendFrame(last.out.memory, t, payload)
		}
	}
	for _, x := range list {
		x.out.revive()
	}
	return list
}

// plausible guards against a file that somebody else wrote.
func plausible(i *link.Info) bool {
	return i.ID != "" && strings.Trim(i.ID, idLetters) == "" && i.LogStart >= 0 && i.LogEnd >= i.LogStart && i.LogSeq >= 1 &&
		i.LogRing > 0 && i.StdoutFrom >= 0 && i.StderrFrom >= 0
}

// idLetters are what ids are made of: they are names of files as well.
const idLetters = "abcdefghijklmnopqrstuvwxyz0123456789-"

// revive makes x what i says. A command that ran when its agent ended is lost.
func (x *execution) revive(i *link.Info, shelf *shelf) {
	x.text, x.user, x.pid, x.started = i.Command, i.User, i.PID, time.Unix(0, i.Started)
	x.exit, x.state, x.recorded = i.Exit, i.State, i.State
	x.end = time.Unix(0, max(i.Ended, i.Started))
	x.in.written = i.StdinBytes
	if x.state != link.ExecExited {
		x.state = link.ExecLost
	}
	x.out = &transcript{
		shelf: shelf, name: x.id, over: true, quota: i.LogRing, start: i.LogStart, end: i.LogEnd, memoryStart: i.LogStart,
		seq: i.LogSeq, total: [2]int64{i.Exit.StdoutBytes, i.Exit.StderrBytes},
		marks: []mark{{i.LogStart, i.LogSeq, [2]int64{i.StdoutFrom, i.StderrFrom}}},
	}
	x.out.room.L = &x.out.mu
}

// revive finds out where the output is: in the record, in the file, or gone.
func (t *transcript) revive() {
	if int64(len(t.memory)) == t.end-t.start && len(wholePieces(t.memory)) == len(t.memory) {
		return
	}
	t.memory, t.memoryStart = nil, t.end
	t.reserved = t.shelf.adopt(t.name)
	if t.reserved < min(t.end, t.quota) {
		t.remove()
	}
}

// removeStrangers removes the files of commands that are not known.
func (s *Service) removeStrangers() {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if name := e.Name(); name != recordsName && s.known[name] == nil {
			_ = os.Remove(s.shelf.path(name))
		}
	}
}
