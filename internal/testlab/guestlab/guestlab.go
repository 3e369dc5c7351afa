// Package guestlab runs the API over the real agent without a VM, for tests of
// what the guest does: the transport, the domain and the guest link are those of
// the daemon, and the guest is guesttest's, on the machine of the test. Every ref
// names the one VM that runs.
//
// Only tests import it. What a test does to files happens on this machine: it
// stays below its own temporary folder.
package guestlab

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/file"
	"github.com/pandovm/pando/internal/guest"
	"github.com/pandovm/pando/internal/guest/guesttest"
	"github.com/pandovm/pando/internal/httpapi"
	"github.com/pandovm/pando/internal/link"
	"github.com/pandovm/pando/internal/node"
	"github.com/pandovm/pando/internal/operation"
	"github.com/pandovm/pando/internal/store"
	"github.com/pandovm/pando/internal/vm"
	pando "github.com/pandovm/pando/sdk"
)

// Lab is one API over one guest.
type Lab struct {
	// Client calls the API at URL with Key.
	Client   *pando.Client
	URL, Key string
	// Guest is the agent, Link the way to it.
	Guest *guesttest.Guest
	Link  *guest.Link
	// Server is what answers; its connections can be cut.
	Server *httptest.Server
}

// Ref names the VM, Missing one that does not exist.
const (
	Ref     = "vm-1"
	Missing = "missing"
)

type vms struct{}

func (vms) Awake(_ context.Context, ref string) (vm.VM, error) {
	if ref == Missing {
		return vm.VM{}, fault.NotFound("vm", ref)
	}
	return vm.VM{ID: Ref, State: api.StateRunning}, nil
}

func (vms) Busy(string) func() { return func() {} }

// New starts a lab that ends with the test.
func New(tb testing.TB, options ...guesttest.Option) *Lab {
	tb.Helper()
	g := guesttest.Start(tb, options...)
	k, _, err := guest.Dial(tb.Context(), g.Socket, link.FreshToken(), link.Epoch{Number: 1, VMID: Ref, NextToken: link.NewToken()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = k.Close() })
	l := &Lab{Guest: g, Link: k, Key: "lab-key"}
	l.Server = l.serve(tb)
	l.URL = l.Server.URL
	if l.Client, err = pando.New(pando.Options{BaseURL: l.URL, APIKey: l.Key, HTTPClient: l.Server.Client()}); err != nil {
		tb.Fatal(err)
	}
	return l
}

// Restarted returns the lab as another daemon would have it: over the same guest,
// and without anything that the first one kept in memory.
func (l *Lab) Restarted(tb testing.TB) *Lab {
	tb.Helper()
	again := *l
	again.Server = again.serve(tb)
	again.URL = again.Server.URL
	var err error
	if again.Client, err = pando.New(pando.Options{BaseURL: again.URL, APIKey: again.Key, HTTPClient: again.Server.Client()}); err != nil {
		tb.Fatal(err)
	}
	return &again
}

func (l *Lab) serve(tb testing.TB) *httptest.Server {
	tb.Helper()
	records, err := store.Open(tb.Context(), filepath.Join(tb.TempDir(), "pando.db"), time.Now)
	if err != nil {
		tb.Fatal(err)
	}
	background := operation.NewBackground()
	tb.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := errors.Join(background.Close(ended), records.Close()); err != nil {
			tb.Error(err)
		}
	})
	files := node.NewFiles(func(ctx context.Context, _ string) (*guest.Link, context.Context, context.CancelFunc, error) {
		ctx, cancel := context.WithCancel(ctx)
		return l.Link, ctx, cancel, nil
	})
	h, err := httpapi.New(httpapi.Config{
		APIKey: l.Key, Files: file.NewService(vms{}, files), Background: background, Keys: operation.NewKeys(records, time.Now),
		Now: time.Now, Log: slog.New(slog.NewTextHandler(tb.Output(), nil)),
	})
	if err != nil {
		tb.Fatal(err)
	}
	srv := httptest.NewServer(h)
	tb.Cleanup(srv.Close)
	return srv
}
