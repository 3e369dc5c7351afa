package link_test

import (
	"bytes"
	"encoding"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pandovm/pando/internal/link"
)

// record is what all wire types do.
type record interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

func sampleEpoch() link.Epoch {
	return link.Epoch{
		Number: 7, VMID: "vm-1", Time: 1234567890123456789, Entropy: bytes.Repeat([]byte{3}, 64),
		ReplyNonce: link.Token{1}, NextToken: link.Token{2}, Boot: true,
		Identity: &link.Identity{
			Hostname: "h", MachineID: strings.Repeat("a", 32), BootID: "b",
			SSHHostKeys: []link.HostKey{{Type: "ed25519", Private: "p", Public: "q"}, {Type: "ecdsa"}},
		},
	}
}

// samples returns one value of each wire type, and an empty one to decode into.
func samples() map[string][2]record {
	e := sampleEpoch()
	return map[string][2]record{
		"epoch": {&e, new(link.Epoch)},
		"confirmation": {&link.Confirmation{
			Number: 7, AgentVersion: "1", Reseeded: true, ClockSet: true, IdentitySet: true,
			ClockUnixNs: -1, KernelRelease: "6.1", Error: "e",
		}, new(link.Confirmation)},
		"order": {&link.Order{
			Command: "true", User: "u", Env: []string{"A=1", "B="}, Timeout: time.Second, MaxOutput: 9, Stdin: true, ID: "exec-1", OpenStdin: true,
		}, new(link.Order)},
		"exit": {&link.Exit{
			Code: 255, TimedOut: true, StdoutBytes: 1, StderrBytes: 2, OOMKilled: true, OOMProcess: "hog",
		}, new(link.Exit)},
		"file order": {&link.FileOrder{
			Op: link.FileWrite, Path: "/p", To: "/t", Owner: "o", Group: "g", ID: "up-1", Mode: 0o600, HasMode: true,
			Recursive: true, Overwrite: true, Offset: 1, Length: -1, Size: 2, Depth: 3,
		}, new(link.FileOrder)},
		"file info": {&link.FileInfo{
			Name: "n", Mode: link.ModeFile | 0o644, Size: 9, ModifiedNs: -1, UID: 1, GID: 2, Owner: "o", Group: "g",
			Target: "t", LinkTo: "l", TargetMode: link.ModeDir, Inode: 3, Offset: 4, Length: 5,
		}, new(link.FileInfo)},
		"file done":    {&link.FileDone{ID: "up-1", Path: "/p", Size: 9, Received: 8, Skipped: 7}, new(link.FileDone)},
		"file refusal": {&link.FileRefusal{Cause: link.FileNoSpace, Path: "/p", Text: "full", Size: 1}, new(link.FileRefusal)},
		"file event":   {&link.FileEvent{Kind: link.FileMoved, Path: "/p", From: "/f", Dir: true}, new(link.FileEvent)},
		"reference": {&link.Ref{
			ID: "exec-1", Stream: 2, Offset: -1, Seq: 3, Wait: true, Close: true, Signal: 15, PID: 7,
		}, new(link.Ref)},
		"command": {&link.Info{
			ID: "exec-1", Command: "true", User: "u", PID: 4, State: link.ExecExited, Exit: link.Exit{Code: 1, StdoutBytes: 2},
			Started: 5, Ended: 6, StdoutFrom: 7, StderrFrom: 8, StdinBytes: 9, StdinOpen: true,
			LogStart: 10, LogEnd: 11, LogSeq: 12, LogRing: 13,
		}, new(link.Info)},
		"process": {&link.Process{
			PID: 1, ParentPID: 2, User: "u", State: "S", CPU: 3, RSS: 4, Started: 5, Command: "c", ExecID: "exec-1",
		}, new(link.Process)},
		"terminal order": {&link.TerminalOrder{
			Command: "top", User: "u", Slug: "s", Cols: 80, Rows: 24, Replace: true,
		}, new(link.TerminalOrder)},
		"terminal pick": {&link.TerminalPick{ID: 1, Slug: "s", User: "u"}, new(link.TerminalPick)},
		"terminal session": {&link.TerminalSession{
			ID: 1, Slug: "s", User: "u", Title: "t", CreatedUnix: 2, Cols: 3, Rows: 4, Exited: true, ExitCode: 5, Created: true, Viewers: 6,
		}, new(link.TerminalSession)},
		"refusal": {&link.Refusal{Cause: link.CauseEnv, Text: "no"}, new(link.Refusal)},
		"reply": {&link.Reply{
			Error: "e", ClockUnixNs: 5, Settled: true, State: "degraded", Failed: []string{"a.service", "b.service"},
		}, new(link.Reply)},
	}
}

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	for name, s := range samples() {
		b, err := s[0].MarshalBinary()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s[1].UnmarshalBinary(b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(s[0], s[1]); diff != "" {
			t.Errorf("%s changed on the wire (-sent +received):\n%s", name, diff)
		}
	}
}

func TestRecordSkipsUnknownFields(t *testing.T) {
	t.Parallel()
	unknown := []byte{200, 0, 0, 0, 3, 'n', 'e', 'w'}
	for name, s := range samples() {
		b, _ := s[0].MarshalBinary()
		b = append(append(append([]byte{}, unknown...), b...), unknown...)
		if err := s[1].UnmarshalBinary(b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(s[0], s[1]); diff != "" {
			t.Errorf("%s (-sent +received):\n%s", name, diff)
		}
	}
}

func TestRecordCutShortIsRefused(t *testing.T) {
	t.Parallel()
	for name, s := range samples() {
		b, _ := s[0].MarshalBinary()
		if err := s[1].UnmarshalBinary(b[:len(b)-1]); err == nil {
			t.Errorf("%s: a record without its last byte was accepted", name)
		}
	}
}

func TestEpochWithoutTokensIsRefused(t *testing.T) {
	t.Parallel()
	for _, spoil := range []func(*link.Epoch){
		func(e *link.Epoch) { e.NextToken = link.Token{} },
		func(e *link.Epoch) { e.ReplyNonce = link.Token{} },
	} {
		e := sampleEpoch()
		spoil(&e)
		b, _ := e.MarshalBinary()
		if err := new(link.Epoch).UnmarshalBinary(b); err == nil {
			t.Errorf("accepted %+v", e)
		}
	}
}

// A token may appear in the stream only at the head of a preamble.
func TestRecordHidesTokens(t *testing.T) {
	t.Parallel()
	e := sampleEpoch()
	e.NextToken, e.ReplyNonce = link.NewToken(), link.NewToken()
	b, _ := e.MarshalBinary()
	if bytes.Contains(b, e.NextToken[:]) || bytes.Contains(b, e.ReplyNonce[:]) {
		t.Error("the record carries a token as it is")
	}
}

func TestTokenText(t *testing.T) {
	t.Parallel()
	want := link.NewToken()
	text, err := want.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var got link.Token
	if err := got.UnmarshalText(text); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "AAAA", "not base64!", string(text) + "AAAA"} {
		if err := got.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}

func TestEpochRoundTripProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := link.Epoch{
			Number: rapid.Int64().Draw(t, "number"), VMID: rapid.String().Draw(t, "vm"),
			Time: rapid.Int64().Draw(t, "time"), Entropy: rapid.SliceOfN(rapid.Byte(), 1, 99).Draw(t, "entropy"),
			ReplyNonce: link.NewToken(), NextToken: link.NewToken(), Boot: rapid.Bool().Draw(t, "boot"),
		}
		if rapid.Bool().Draw(t, "identity") {
			e.Identity = &link.Identity{Hostname: rapid.String().Draw(t, "host")}
		}
		b, _ := e.MarshalBinary()
		var got link.Epoch
		if err := got.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzRecords checks that no bytes make a decoder fail otherwise than with an
// error, and that what it accepts survives another round.
func FuzzRecords(f *testing.F) {
	for _, s := range samples() {
		b, _ := s[0].MarshalBinary()
		f.Add(b)
	}
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, s := range samples() {
			if s[1].UnmarshalBinary(b) != nil {
				continue
			}
			again, _ := s[1].MarshalBinary()
			if err := s[0].UnmarshalBinary(again); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff(s[1], s[0]); diff != "" {
				t.Fatalf("%s changed in the second round:\n%s", name, diff)
			}
		}
	})
}
