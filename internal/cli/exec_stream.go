package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

const (
	// lastInterrupt is the one that leaves the command to itself.
	lastInterrupt = 3
	// interruptDelay is how long a cancelled context waits for the signal that
	// cancelled it: it says more.
	interruptDelay = 100 * time.Millisecond
	// signalTimeout bounds the passing on of a signal.
	signalTimeout = 10 * time.Second
)

// stream runs cmd, or attaches to it, and exits as it does. Interrupts are the
// command's; the last one leaves it to itself.
func (a *app) stream(ctx context.Context, ref string, cmd *pando.Cmd) error {
	run, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	started := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-started:
		default:
			leave() // there is nothing yet that could be interrupted
		}
	})
	err := cmd.Start(run)
	close(started)
	stop()
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	ended := make(chan struct{})
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		a.forward(ctx, cmd, ended, leave)
	}()
	err = cmd.Wait()
	close(ended)
	<-forwarded
	if run.Err() != nil {
		a.say("pando: the command goes on")
		a.say("  fix: see it with: pando vm attach %s %s", ref, cmd.ID())
		return exitError(exitInterrupted)
	}
	return a.outcome(cmd, err)
}

// forward passes signals on until the command has ended.
func (a *app) forward(ctx context.Context, cmd *pando.Cmd, ended <-chan struct{}, leave func()) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(signals)
	cancelled := ctx.Done()
	var late <-chan time.Time
	for n := 0; ; {
		name := "INT"
		select {
		case <-ended:
			return
		case <-cancelled:
			cancelled, late = nil, time.After(interruptDelay)
			continue
		case <-late:
			late = nil
		case s := <-signals:
			if s == unix.SIGINT || s == unix.SIGTERM {
				cancelled, late = nil, nil // that was this signal as well
			}
			if number, ok := s.(unix.Signal); ok {
				name = strings.TrimPrefix(unix.SignalName(number), "SIG")
			}
		}
		if n++; n >= lastInterrupt {
			leave()
			return
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), signalTimeout)
		_ = cmd.Signal(bounded, name) // it may just have ended
		cancel()
	}
}

// outcome turns the command's end into this program's.
func (a *app) outcome(cmd *pando.Cmd, err error) error {
	if n := cmd.Missed(); n > 0 {
		a.say("pando: %s of output are missing: they were no longer kept", bytesText(n))
	}
	exit, ok := errors.AsType[*pando.ExitError](err)
	if !ok {
		return err
	}
	switch {
	case exit.Exec.OOMKilled:
		a.say("pando: the VM was out of memory and killed %s", printable(exit.Exec.OOMProcess))
	case exit.Exec.TimedOut:
		a.say("pando: the command was killed: its time was up")
		a.say("  fix: give it more time with --timeout, or start it with --detach")
		return exitError(exitTimeout)
	case exit.Exec.State == api.ExecLost:
		a.say("pando: nobody knows how the command ended: the VM's agent was started anew meanwhile")
	}
	if code := exit.ExitCode(); code > 0 {
		return exitError(code)
	}
	return exitError(1)
}
