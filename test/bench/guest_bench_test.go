package bench

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
)

// request sends a request with the lab's key; the caller closes the body.
func request(b *testing.B, l *testlab.Lab, method, path string, body io.Reader) *http.Response {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, l.URL+path, body)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+l.Key)
	if body != nil {
		r.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		text, _ := io.ReadAll(resp.Body)
		b.Fatalf("%s %s: %s %s", method, path, resp.Status, text)
	}
	return resp
}

// warm is a VM whose guest has run what will be measured some times already.
func warm(b *testing.B, l *testlab.Lab, run func(id string)) string {
	b.Helper()
	id := l.Create(testlab.Debian).ID
	for range 10 {
		run(id)
	}
	return id
}

func BenchmarkWarmExec(b *testing.B) {
	l := lab(b)
	run := func(id string) {
		res, err := l.Client.VMs.Exec(b.Context(), id, api.ExecRequest{Command: "true"})
		if err != nil || res.StatusCode == nil || *res.StatusCode != 0 {
			b.Fatalf("true: %v, %+v", err, res)
		}
	}
	id := warm(b, l, run)
	s := newSeries(b, "warm-exec", "ms")
	for b.Loop() {
		start := time.Now()
		run(id)
		s.add(time.Since(start))
	}
	s.report()
}

// The least that asks the agent something: whether a file exists.
func BenchmarkAgentRoundTrip(b *testing.B) {
	l := lab(b)
	run := func(id string) {
		resp := request(b, l, http.MethodGet, "/v5/vms/"+id+"/fs/exists?path=/", nil)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	id := warm(b, l, run)
	s := newSeries(b, "agent-round-trip", "ms")
	for b.Loop() {
		start := time.Now()
		run(id)
		s.add(time.Since(start))
	}
	s.report()
}

// From a key to its echo: the WebSocket, the agent, the guest's terminal and
// back. Keys come 20 ms apart, so that each finds the guest at rest.
func BenchmarkKeystrokeEcho(b *testing.B) {
	l := lab(b)
	id := l.Create(testlab.Debian).ID
	ws := dialTerminal(b, l, id, "stty raw echo; printf ready; exec cat >/dev/null")
	defer ws.Close()
	readUntil(b, ws, []byte("ready"))
	key := func() { sendBinary(b, ws, []byte("k")); readUntil(b, ws, []byte("k")) }
	for range 10 {
		key()
	}
	s := newSeries(b, "keystroke-echo", "ms")
	for b.Loop() {
		time.Sleep(20 * time.Millisecond)
		start := time.Now()
		key()
		s.add(time.Since(start))
	}
	s.report()
}

func dialTerminal(b *testing.B, l *testlab.Lab, id, command string) *websocket.Conn {
	b.Helper()
	address := "ws" + strings.TrimPrefix(l.URL, "http") + "/v5/vms/" + id + "/pty?exec=" + url.QueryEscape(command)
	c, err := websocket.NewConfig(address, l.URL)
	if err != nil {
		b.Fatal(err)
	}
	c.Header = http.Header{"Authorization": {"Bearer " + l.Key}}
	ws, err := c.DialContext(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return ws
}

func sendBinary(b *testing.B, ws *websocket.Conn, data []byte) {
	b.Helper()
	if err := websocket.Message.Send(ws, data); err != nil {
		b.Fatal(err)
	}
}

// readUntil reads messages until the terminal's output ends with want. Text
// frames, which are no output, begin with a brace.
func readUntil(b *testing.B, ws *websocket.Conn, want []byte) {
	b.Helper()
	var seen []byte
	for !bytes.HasSuffix(seen, want) {
		var frame []byte
		if err := websocket.Message.Receive(ws, &frame); err != nil {
			b.Fatalf("%v after %q", err, seen)
		}
		if !bytes.HasPrefix(frame, []byte("{")) {
			seen = append(seen, frame...)
		}
	}
}

// transferBytes is what one upload or download carries: incompressible, and
// more than any buffer on its way holds.
const transferBytes = 256 << 20

func BenchmarkUpload(b *testing.B) {
	l := lab(b)
	id := l.Create(testlab.Debian).ID
	data := make([]byte, transferBytes)
	_, _ = rand.Read(data) // it never fails
	s := newSeries(b, "upload", "MB/s")
	for b.Loop() {
		start := time.Now()
		_ = request(b, l, http.MethodPut, "/v5/vms/"+id+"/fs/write?path=/dev/shm/up", bytes.NewReader(data)).Body.Close()
		s.addValue(transferBytes / 1e6 / time.Since(start).Seconds())
	}
	if size := strings.TrimSpace(l.Run(id, "stat -c %s /dev/shm/up")); size != strconv.Itoa(transferBytes) {
		b.Fatalf("%s bytes arrived", size)
	}
	s.report()
}

func BenchmarkDownload(b *testing.B) {
	l := lab(b)
	id := l.Create(testlab.Debian).ID
	l.Run(id, fmt.Sprintf("head -c %d /dev/urandom > /dev/shm/down", transferBytes))
	s := newSeries(b, "download", "MB/s")
	for b.Loop() {
		start := time.Now()
		resp := request(b, l, http.MethodGet, "/v5/vms/"+id+"/fs/read?path=/dev/shm/down", nil)
		n, err := io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || n != transferBytes {
			b.Fatalf("%d bytes came (%v)", n, err)
		}
		s.addValue(transferBytes / 1e6 / time.Since(start).Seconds())
	}
	s.report()
}

// printedBytes is what the loud command prints.
const printedBytes = 5_000_000_000

// The memory of daemon and agent, looked at again and again, while a command
// prints and a client of the stream reads along.
func BenchmarkMemoryOfLoudCommand(b *testing.B) {
	l := lab(b)
	id := l.Create(testlab.Debian).ID
	daemon, agent := newSeries(b, "daemon-rss-loud", "MB"), newSeries(b, "agent-rss-loud", "MB")
	for b.Loop() {
		done := make(chan error, 1)
		go func() { done <- printMuch(b, l, id) }()
		watchMemory(b, l, id, done, daemon, agent)
	}
	b.ReportMetric(slices.Max(daemon.Samples), "most-daemon-rss-MB")
	b.ReportMetric(slices.Max(agent.Samples), "most-agent-rss-MB")
	daemon.report()
	agent.report()
}

// printMuch runs the command by the streaming route and reads its events.
func printMuch(b *testing.B, l *testlab.Lab, id string) error {
	b.Helper()
	body := fmt.Sprintf(`{"command":"head -c %d /dev/zero","timeoutMs":3000000}`, printedBytes)
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, l.URL+"/v5/vms/"+id+"/exec", strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+l.Key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("start: %s", resp.Status)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && n < printedBytes/1000 {
		err = fmt.Errorf("the stream had only %d bytes", n)
	}
	return err
}

func watchMemory(b *testing.B, l *testlab.Lab, id string, done <-chan error, daemon, agent *series) {
	b.Helper()
	for {
		daemon.addValue(residentMB(b, readFile(b, fmt.Sprintf("/proc/%d/status", l.Daemon()))))
		agent.addValue(residentMB(b, l.Run(id, "cat /proc/$(pidof -s pando-agent)/status")))
		select {
		case err := <-done:
			if err != nil {
				b.Fatal(err)
			}
			return
		case <-time.After(time.Second):
		}
	}
}

func readFile(b *testing.B, path string) string {
	b.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

// residentMB is VmRSS of a status file, in MB.
func residentMB(b *testing.B, status string) float64 {
	b.Helper()
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb * 1024 / 1e6
		}
	}
	b.Fatalf("no VmRSS in %q", status)
	return 0
}
