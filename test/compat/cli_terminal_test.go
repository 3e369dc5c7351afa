package compat

import (
	"strings"
	"syscall"
	"testing"
)

// What a person at a terminal gets: shells.
func (f *freestyle) testTerminal(t *testing.T) {
	f.create(t, "--slug", "term")
	p := f.atTerminal(t, "vm", "ssh", "term", "--linux-user", "root")
	p.Types("stty size; echo user=$(id -u)\r")
	p.Sees("30 100")
	p.Sees("user=0")
	p.Resize(120, 40)
	p.Types("sleep 1; stty size\r")
	p.Sees("40 120")
	p.Types("echo about to; sleep 1000\r")
	p.Sees("about to\r") // the shell is done with the line: before, the key would belong to its editor
	p.Types("\x03")      // in raw mode this is a key, not a signal to the client
	p.Types("echo alive=$((1+1))\r")
	p.Sees("alive=2")
	p.Types("exit 3\r")
	p.Ends(3)

	p = f.atTerminal(t, "vm", "exec", "-it", "term", "--", "sh")
	p.Types("echo it=$((2+2)); exit 4\r")
	p.Sees("it=4")
	p.Ends(4)

	// A create opens a shell by itself at a terminal.
	p = f.atTerminal(t, "vm", "create", "--snapshot-id", "freestyle/busybox", "--slug", "shell")
	p.Sees("connecting")
	p.Types("echo new=$((3+3)); exit\r")
	p.Sees("new=6")
	p.Sees("is still running")
	p.Ends(0)
	f.ok(t, "vm", "delete", "shell")

	// And one with a command runs that, wherever it is.
	r := f.ok(t, "vm", "create", "--snapshot-id", "freestyle/busybox", "--slug", "ran", "--", "echo", "in the vm")
	r.has(t, "in the vm")
	f.ok(t, "vm", "delete", "ran")
	r = f.run(t, "echo forced=$((4+4))\nexit\n", "vm", "--snapshot-id", "freestyle/busybox", "--slug", "forced", "--ssh")
	if r.code != 0 || !strings.Contains(r.stdout, "forced=8") {
		t.Errorf("code %d: %s", r.code, r)
	}
	f.used.add(r.args)
	f.ok(t, "vm", "delete", "forced")
	f.ok(t, "vm", "delete", "term")
}

// What a person at a terminal is asked.
func (f *freestyle) testQuestions(t *testing.T) {
	holder := f.create(t, "--slug", "asked")
	p := f.atTerminal(t, "vm", "create", "--no-ssh", "--snapshot-id", "freestyle/busybox", "--slug", "asked")
	p.Sees("taken by " + holder.ID + ". Take it? [y/N]")
	p.Types("y\r")
	p.Ends(0)
	f.ok(t, "vm", "get", "asked").has(t, "running")
	var got vmRecord
	f.json(t, &got, "vm", "get", "asked")
	if got.ID == holder.ID {
		t.Error("the slug has not moved")
	}
	p = f.atTerminal(t, "vm", "update", holder.ID, "--slug", "asked")
	p.Sees("Take it? [y/N]")
	p.Types("n\r")
	p.Ends(1)

	p = f.atTerminal(t, "vm", "snapshot", "create", "asked")
	p.Sees("Name this snapshot")
	p.Types("by-hand\r")
	p.Ends(0)
	f.ok(t, "snapshot", "get", "by-hand").has(t, got.ID)
	f.ok(t, "snapshot", "delete", "by-hand")

	// A snapshot that is set up by hand.
	p = f.atTerminal(t, "snapshot", "create", "--base", "freestyle/busybox", "--slug", "hand-made", "--interactive")
	p.Sees("Set this VM up however you like")
	p.Types("echo done=$((5+5)) > /tmp/hand; cat /tmp/hand; exit\r")
	p.Sees("done=10")
	p.Ends(0)
	var made vmRecord
	f.json(t, &made, "vm", "create", "--no-ssh", "--snapshot-id", "hand-made")
	f.ok(t, "vm", "exec", made.ID, "--", "cat", "/tmp/hand").has(t, "done=10")
	f.ok(t, "vm", "delete", made.ID)
	f.ok(t, "snapshot", "delete", "hand-made")

	// One that is given up takes its VM with it.
	before := len(f.vms(t))
	p = f.atTerminal(t, "snapshot", "create", "--base", "freestyle/busybox", "--script", "/dev/stdin", "--slug", "given-up")
	p.Types("echo going; sleep 1000\r\x04")
	p.Sees("going\r") // the output, not the echo of what was typed
	p.Signal(syscall.SIGINT)
	p.Ends(130)
	if after := len(f.vms(t)); after != before {
		t.Errorf("%d VMs, want %d", after, before)
	}
	f.ok(t, "vm", "delete", "asked")
	f.ok(t, "vm", "delete", holder.ID)
}

// What the client says of mistakes: the code, the message and what to do.
func (f *freestyle) testMistakes(t *testing.T) {
	f.fails(t, "Error: NOT_FOUND — ", "vm", "get", "nobody")
	f.fails(t, "Error: NOT_FOUND — ", "vm", "exec", "nobody", "--", "true")
	f.fails(t, "Error: NOT_FOUND — ", "vm", "pause", "nobody")
	f.fails(t, "Error: NOT_FOUND — ", "snapshot", "get", "freestyle/nothing")
	f.fails(t, "Error: BAD_REQUEST — ", "vm", "create", "--no-ssh", "--slug", "Not A Slug")
	f.fails(t, "Error: INVALID_API_KEY — ", "--api-key", "wrong", "vm", "list")
	f.fails(t, "came from the --api-key flag", "--api-key", "wrong", "vm", "list")
	f.fails(t, "fetch failed", "--proxy", "http://127.0.0.1:7", "vm", "list")
	r := f.run(t, "", "vm", "ssh", "nobody")
	if r.code != 1 || !strings.Contains(r.stderr, "No such VM") {
		t.Errorf("a shell in no VM: code %d, %s", r.code, r)
	}
	r = f.run(t, "", "--api-key", "wrong", "vm", "ssh", "nobody")
	if r.code != 1 || !strings.Contains(r.stderr, "The API key was rejected") {
		t.Errorf("a shell with a wrong key: code %d, %s", r.code, r)
	}
	f.fails(t, "Error: ", "vm", "create", "--no-ssh", "--snapshot-id", "freestyle/busybox", "--vpc", "nowhere", "--ipv4", "10.0.0.2")
}
