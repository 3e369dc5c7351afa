package cli_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/cli"
)

// execRequest runs the command line and returns what the daemon was asked.
func execRequest(t *testing.T, stdin string, args ...string) api.ExecRequest {
	t.Helper()
	var body string
	l := newLab(t, record(t, &body, reply(t, http.StatusOK, api.ExecResponse{StatusCode: new(0)})))
	l.in = stdin
	if code := l.run(t.Context(), append([]string{"vm", "exec", "--json"}, args...)...); code != 0 {
		t.Fatalf("exit %d: %s", code, l.err.String())
	}
	var r api.ExecRequest
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("request %q: %v", body, err)
	}
	return r
}

func TestExecRequest(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		stdin string
		args  []string
		want  api.ExecRequest
	}{
		"one argument is shell text": {
			"",
			[]string{"web", "cd / && ls | wc -l"},
			api.ExecRequest{Command: "cd / && ls | wc -l", TimeoutMs: new(int64(30_000))},
		},
		"several are quoted": {
			"",
			[]string{"web", "--", "printf", "%s\n", "it's", "$HOME", ""},
			api.ExecRequest{Command: `'printf' '%s` + "\n" + `' 'it'\''s' '$HOME' ''`, TimeoutMs: new(int64(30_000))},
		},
		"options before and after the name": {
			"",
			[]string{"--user", "root", "web", "--env", "A=1", "--env", "B=x=y,z", "--timeout", "2m", "--", "ls", "-l"},
			api.ExecRequest{
				Command: "'ls' -l", LinuxUser: new("root"), Env: map[string]string{"A": "1", "B": "x=y,z"}, TimeoutMs: new(int64(120_000)),
			},
		},
		"stdin": {
			"a\x00b\n",
			[]string{"web", "cat"},
			api.ExecRequest{Command: "cat", TimeoutMs: new(int64(30_000)), Stdin: new("YQBiCg==")},
		},
		"no stdin": {
			"ignored",
			[]string{"web", "-n", "cat"},
			api.ExecRequest{Command: "cat", TimeoutMs: new(int64(30_000))},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, execRequest(t, tt.stdin, tt.args...)); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExecStdinLimit(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	full := strings.Repeat("x", limit)
	got := execRequest(t, full, "web", "cat")
	if decoded, err := base64.StdEncoding.DecodeString(*got.Stdin); err != nil || string(decoded) != full {
		t.Errorf("1 MiB of stdin did not arrive whole: %d bytes, %v", len(decoded), err)
	}
	l := newLab(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the daemon was called") }))
	l.in = full + "y"
	code := l.run(t.Context(), "vm", "exec", "--json", "web", "cat")
	if code != 1 || !strings.Contains(l.err.String(), "standard input is longer than 1 MiB") {
		t.Errorf("exit %d, stderr %q", code, l.err.String())
	}
}

func TestExecLeavesTheTerminalAlone(t *testing.T) {
	t.Parallel()
	var body string
	l := newLab(t, record(t, &body, reply(t, http.StatusOK, api.ExecResponse{StatusCode: new(0)})))
	l.IO = &cli.IOStreams{In: failingReader{t}, Out: &l.out, Err: &l.err, InTerminal: true}
	if code := l.run(t.Context(), "vm", "exec", "--json", "web", "true"); code != 0 {
		t.Fatalf("exit %d: %s", code, l.err.String())
	}
	if strings.Contains(body, "stdin") {
		t.Errorf("request = %s", body)
	}
}

type failingReader struct{ t *testing.T }

func (r failingReader) Read([]byte) (int, error) {
	r.t.Error("standard input was read")
	return 0, io.EOF
}

func TestExecExitCodes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answer api.ExecResponse
		code   int
		stderr string
	}{
		"success":            {api.ExecResponse{StatusCode: new(0)}, 0, ""},
		"its own":            {api.ExecResponse{StatusCode: new(77)}, 77, ""},
		"largest":            {api.ExecResponse{StatusCode: new(255)}, 255, ""},
		"timeout":            {api.ExecResponse{TimedOut: true}, 124, "its time was up"},
		"timeout by null":    {api.ExecResponse{}, 124, "its time was up"},
		"timeout and a code": {api.ExecResponse{TimedOut: true, StatusCode: new(0)}, 124, "its time was up"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, reply(t, http.StatusOK, tt.answer))
			if code := l.run(t.Context(), "vm", "exec", "web", "--json", "x"); code != tt.code {
				t.Errorf("exit %d, want %d", code, tt.code)
			}
			end := api.Exec{State: api.ExecExited, StatusCode: tt.answer.StatusCode, TimedOut: tt.answer.TimedOut || tt.answer.StatusCode == nil}
			if end.TimedOut {
				end.StatusCode = nil
			}
			l = newLab(t, execDaemon(t, end))
			if code := l.run(t.Context(), "vm", "exec", "web", "x"); code != tt.code {
				t.Errorf("streamed: exit %d, want %d", code, tt.code)
			}
			if !strings.Contains(l.err.String(), tt.stderr) {
				t.Errorf("stderr = %q, want %q in it", l.err.String(), tt.stderr)
			}
		})
	}
}

func TestExecPassesBytesThrough(t *testing.T) {
	t.Parallel()
	l := newLab(t, execDaemon(
		t, api.Exec{State: api.ExecExited, StatusCode: new(0)},
		api.ExecEvent{Stream: api.StreamStdout, Text: "no newline\x1b[1m"}, api.ExecEvent{Stream: api.StreamStderr, Data: []byte("err\xff")},
	))
	if code := l.run(t.Context(), "vm", "exec", "web", "x"); code != 0 {
		t.Fatalf("exit %d", code)
	}
	if l.out.String() != "no newline\x1b[1m" || l.err.String() != "err\xff" {
		t.Errorf("stdout %q, stderr %q", l.out.String(), l.err.String())
	}
}

// execDaemon streams a command that prints and ends as said, and takes input and
// signals; a signal ends it.
func execDaemon(t *testing.T, end api.Exec, output ...api.ExecEvent) http.Handler {
	t.Helper()
	const id = "exec-7c9e6679-7425-40de-944b-e07fc1f90ae7"
	end.ID, end.StartedAt = id, moment()
	running := api.Exec{ID: id, State: api.ExecRunning, StdinOpen: true, StartedAt: moment()}
	signalled := make(chan string, 1)
	mux := http.NewServeMux()
	stream := func(w http.ResponseWriter, r *http.Request) {
		enc := json.NewEncoder(w)
		events := []api.ExecEvent{{Type: api.EventExec, Exec: &running}}
		for i, e := range output {
			e.Type, e.Seq = api.EventOutput, int64(i+1)
			events = append(events, e)
		}
		for _, e := range events {
			if err := enc.Encode(e); err != nil {
				t.Error(err)
			}
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		last := end
		if end.State == api.ExecRunning {
			select {
			case <-signalled:
			case <-r.Context().Done():
				return
			}
			last.State, last.StatusCode = api.ExecExited, new(130)
		}
		if err := enc.Encode(api.ExecEvent{Type: api.EventExec, Exec: &last}); err != nil {
			t.Error(err)
		}
	}
	mux.HandleFunc("POST /v5/vms/web/exec", stream)
	mux.HandleFunc("GET /v5/vms/web/exec/"+id+"/output", stream)
	mux.HandleFunc("POST /v5/vms/web/exec/"+id+"/stdin", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		reply(t, http.StatusOK, running)(w, r)
	})
	mux.HandleFunc("POST /v5/vms/web/exec/"+id+"/signal", func(w http.ResponseWriter, r *http.Request) {
		var s api.SignalRequest
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			t.Error(err)
		}
		signalled <- s.Signal
		reply(t, http.StatusOK, running)(w, r)
	})
	return mux
}

// An interrupt is the command's, whose end is then waited for.
func TestInterruptIsPassedOn(t *testing.T) {
	t.Parallel()
	l := newLab(t, execDaemon(t, api.Exec{State: api.ExecRunning}, api.ExecEvent{Stream: api.StreamStdout, Text: "x"}))
	ctx, cancel := context.WithCancel(t.Context())
	l.IO = &cli.IOStreams{In: strings.NewReader(""), Out: writerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	}), Err: &l.err}
	if code := l.run(ctx, "vm", "exec", "web", "sleep 100"); code != 130 {
		t.Errorf("exit %d: %s", code, l.err.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// What the shell gets must come out of it as the arguments that went in.
func TestQuotingSurvivesTheShell(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		word := rapid.StringOf(rapid.OneOf(
			rapid.RuneFrom([]rune(" '\"\\$`!*?[]{}()<>|&;~#=%\n\t-ab")), rapid.Rune().Filter(func(c rune) bool { return c != 0 }),
		))
		words := rapid.SliceOfN(word, 1, 5).Draw(r, "words")
		argv := append([]string{"printf", `%s\0`}, words...)
		request := execRequest(t, "", append([]string{"web", "--"}, argv...)...)
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", request.Command).Output()
		if err != nil {
			r.Fatalf("sh -c %q: %v", request.Command, err)
		}
		if diff := cmp.Diff(strings.Join(words, "\x00")+"\x00", string(out)); diff != "" {
			r.Errorf("%q (-want +got):\n%s", request.Command, diff)
		}
	})
}

func TestFirstWordIsNeitherKeywordNorAssignment(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"if", "A=1", "{", "!"} {
		request := execRequest(t, "", "web", "--", word, "x")
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", request.Command).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "not found") {
			t.Errorf("%q gave %q, %v; want a program that is not found", request.Command, out, err)
		}
	}
}

func TestInterruptWhileReadingStdin(t *testing.T) {
	t.Parallel()
	l := newLab(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the daemon was called") }))
	ctx, cancel := context.WithCancel(t.Context())
	in, feed := io.Pipe()
	defer func() { _ = feed.Close() }() // ends the reader that the interrupt left behind
	l.IO = &cli.IOStreams{In: in, Out: &l.out, Err: &l.err}
	go func() {
		_, _ = feed.Write([]byte("x")) // returns once the command reads
		cancel()
	}()
	if code := l.run(ctx, "vm", "exec", "--json", "web", "cat"); code != 130 {
		t.Errorf("exit %d, want 130", code)
	}
}
