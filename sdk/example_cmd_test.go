package pando_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

// exampleDaemon is a daemon for examples: its VMs run commands on this host, once
// all of their input has come.
func exampleDaemon() *httptest.Server {
	var (
		mu    sync.Mutex
		input bytes.Buffer
	)
	fed := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v5/vms/web/exec", func(w http.ResponseWriter, r *http.Request) {
		var order api.StartExecRequest
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		events := json.NewEncoder(w)
		e := api.Exec{ID: execID, State: api.ExecRunning, StdinOpen: order.OpenStdin}
		_ = events.Encode(api.ExecEvent{Type: api.EventExec, Exec: &e})
		_ = http.NewResponseController(w).Flush()
		if order.OpenStdin {
			<-fed
		}
		cmd := exec.CommandContext(r.Context(), "/bin/sh", "-c", order.Command)
		mu.Lock()
		cmd.Stdin = bytes.NewReader(input.Bytes())
		mu.Unlock()
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return // the stream breaks off
		}
		_ = events.Encode(api.ExecEvent{Type: api.EventOutput, Stream: api.StreamStdout, Seq: 1, Text: string(out)})
		code := cmd.ProcessState.ExitCode()
		e.State, e.StatusCode = api.ExecExited, &code
		_ = events.Encode(api.ExecEvent{Type: api.EventExec, Exec: &e})
	})
	mux.HandleFunc("POST /v5/vms/web/exec/"+execID+"/stdin", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&input, r.Body)
		if r.URL.Query().Get("close") == "true" {
			close(fed)
		}
		_ = json.NewEncoder(w).Encode(api.Exec{ID: execID, StdinBytes: int64(input.Len())})
	})
	return httptest.NewServer(mux)
}

func ExampleVMs_Command() {
	daemon := exampleDaemon()
	defer daemon.Close()
	client, err := pando.New(pando.Options{BaseURL: daemon.URL, APIKey: "secret", HTTPClient: daemon.Client()})
	if err != nil {
		log.Fatal(err)
	}
	out, err := client.VMs.Command("web", "printf", "%s\n", "taken literally: $HOME").Output(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", out)
	// Output: taken literally: $HOME
}

func ExampleCmd() {
	daemon := exampleDaemon()
	defer daemon.Close()
	client, err := pando.New(pando.Options{BaseURL: daemon.URL, APIKey: "secret", HTTPClient: daemon.Client()})
	if err != nil {
		log.Fatal(err)
	}
	cmd := client.VMs.Shell("web", "sort -u; exit 3")
	cmd.Stdin = strings.NewReader("b\na\nb\n")
	cmd.Stdout = os.Stdout
	err = cmd.Run(context.Background())
	if exit, ok := errors.AsType[*pando.ExitError](err); ok {
		fmt.Println("it ended with", exit.ExitCode())
	}
	// Output:
	// a
	// b
	// it ended with 3
}
