package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Server serves a handler on a listener and stops gracefully.
type Server struct {
	handler http.Handler
	log     *slog.Logger
	grace   time.Duration
}

// NewServer returns a server that gives the requests under way up to grace to
// finish when it is stopped.
func NewServer(h http.Handler, log *slog.Logger, grace time.Duration) *Server {
	return &Server{handler: h, log: log, grace: grace}
}

// maxHeaderBytes bounds the line and the headers of a request.
const maxHeaderBytes = 64 << 10

// abortPatience is how long requests have to return after they were cancelled.
const abortPatience = 5 * time.Second

// Serve answers requests until ctx ends, then closes the listener, waits for
// the requests under way, cancels those that last longer than the grace, and
// returns nil. It returns an error if the listener fails.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	// Requests outlive ctx: its end starts the grace, not their cancellation.
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv := s.httpServer(base)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve http: %w", errors.Join(err, srv.Close()))
	case <-ctx.Done():
	}
	err := s.stop(base, cancel, srv)
	if serve := <-failed; !errors.Is(serve, http.ErrServerClosed) {
		err = errors.Join(err, serve)
	}
	return err
}

func (s *Server) httpServer(base context.Context) *http.Server {
	return &http.Server{
		Handler:     s.handler,
		BaseContext: func(net.Listener) context.Context { return base },
		// No ReadTimeout and no WriteTimeout: both would cut a command that
		// runs for hours. Bodies have a deadline of their own.
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

func (s *Server) stop(base context.Context, cancel context.CancelFunc, srv *http.Server) error {
	if shutdown(base, srv, s.grace) == nil {
		return nil
	}
	s.log.Info("cancel http requests that did not finish in time")
	cancel()
	if shutdown(context.WithoutCancel(base), srv, abortPatience) == nil {
		return nil
	}
	if err := srv.Close(); err != nil {
		return fmt.Errorf("close http server: %w", err)
	}
	return nil
}

func shutdown(base context.Context, srv *http.Server, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(base, patience)
	defer cancel()
	return srv.Shutdown(ctx)
}
