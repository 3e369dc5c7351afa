package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/operation"
)

// The headers of background requests and of requests that may be repeated.
const (
	backgroundAfterHeader = "X-Freestyle-Background-After-Secs"
	backgroundIDHeader    = "X-Freestyle-Background-Request-Id"
	idempotencyHeader     = "Idempotency-Key"
	replayedHeader        = "Idempotency-Replayed"
)

const backgroundPath = "/v5/background-requests/"

// soleOwner owns everything as long as there is one key for the whole daemon.
const soleOwner = "local"

func (s *server) backgroundRoutes() []route {
	return []route{
		handleRaw(Operation{
			Method: "GET", Path: backgroundPath + "{id}", ID: "getBackgroundRequest", Status: http.StatusAccepted,
			Summary: "Fetch the answer of a request that was answered 202.",
			Description: "A 202 means that it is still under way. Any other answer is that of the original request, " +
				"with its status, headers and body, and has the header x-freestyle-background-request-id. " +
				"Answers are kept for 10 minutes after the work has ended, and not beyond the end of the daemon.",
			Response: reflect.TypeFor[api.BackgroundRequest](),
			Errors:   []api.Code{api.CodeNotFound, api.CodeBackgroundResultUnstorable},
		}, s.backgroundResult),
	}
}

// answerJSON decodes a request and answers it: in line, or with the promise of
// an answer if the client allows it and the work lasts.
func (s *server) answerJSON(e *exchange, r *http.Request, rt route) error {
	after, mayLast, err := backgroundAfter(r.Header)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r.Header, rt.Operation)
	if err != nil {
		return err
	}
	todo, err := rt.decode(e, r)
	if err != nil {
		return err
	}
	do := func(ctx context.Context) operation.Answer { return s.carryOut(ctx, todo, key) }
	if !mayLast {
		s.write(e, do(r.Context()))
		return nil
	}
	origin := operation.Origin{Owner: soleOwner, Operation: rt.ID, Ref: todo.ref}
	a, id, err := s.background.Run(r.Context(), origin, after, do, s.logLate(e, rt)) //nolint:contextcheck // the request it belongs to is over by then
	if err != nil {
		return err
	}
	if id != "" {
		return promise(e, id)
	}
	s.write(e, a)
	return nil
}

// carryOut does the work, at most once if the request has a key. Whatever
// happens is an answer.
func (s *server) carryOut(ctx context.Context, w work, key string) operation.Answer {
	do := func(ctx context.Context, seed string) operation.Answer { return attempt(ctx, w, seed) }
	if key == "" {
		return do(ctx, "")
	}
	a, err := s.keys.Do(ctx, operation.Request{Owner: soleOwner, Key: key, Fingerprint: w.fingerprint, Do: do, Find: w.find})
	if err != nil {
		return refusal(ctx, err)
	}
	if a.Replayed {
		a.Header = maps.Clone(a.Header)
		if a.Header == nil {
			a.Header = http.Header{}
		}
		a.Header[replayedHeader] = []string{"true"}
	}
	return a
}

// attempt turns errors and panics into answers.
func attempt(ctx context.Context, w work, seed string) (a operation.Answer) {
	defer func() {
		if p := recover(); p != nil {
			a = refusal(ctx, fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack()))
		}
	}()
	a, err := w.do(ctx, seed)
	if err != nil {
		return refusal(ctx, err)
	}
	a.RequestID = exchangeID(ctx)
	return a
}

// refusal is the answer for an error.
func refusal(ctx context.Context, err error) operation.Answer {
	p := problem(err, exchangeID(ctx))
	// The envelope holds strings and numbers: it can always be encoded.
	a, _ := jsonAnswer(StatusOf(p.Code), p)
	a.RequestID, a.Err = exchangeID(ctx), err
	return a
}

// write answers with a. A replay names the request that was carried out, under
// which the log says what happened.
func (s *server) write(e *exchange, a operation.Answer) {
	e.err = a.Err
	if a.Replayed {
		e.replays = a.RequestID
		e.Header().Set(requestIDHeader, a.RequestID)
	}
	writeAnswer(e, a)
}

// promise answers that the work goes on and where its answer can be fetched.
func promise(e *exchange, id string) error {
	e.background = id
	e.Header().Set(backgroundIDHeader, id)
	return writeJSON(e, http.StatusAccepted, api.BackgroundRequest{
		RequestID: id, Status: api.BackgroundPending, ResultURL: backgroundPath + id,
	})
}

func (s *server) backgroundResult(w http.ResponseWriter, _ *http.Request, in call[none]) error {
	e, ok := w.(*exchange)
	if !ok {
		return errors.New("answer a background request: the writer is not the exchange")
	}
	a, done, err := s.background.Result(soleOwner, in.ref)
	if err == nil && !done {
		return promise(e, in.ref)
	}
	if f := fault.As(err); f == nil || f.Code != api.CodeNotFound {
		e.background = in.ref
		e.Header().Set(backgroundIDHeader, in.ref)
	}
	if err != nil {
		return err
	}
	// What failed was logged when it failed.
	a.Err = nil
	s.write(e, a)
	return nil
}

// logLate logs the end of work that nobody waited for.
func (s *server) logLate(e *exchange, rt route) func(id string, a operation.Answer) {
	return func(id string, a operation.Answer) {
		level := slog.LevelInfo
		attrs := []slog.Attr{
			slog.String("request_id", e.id), slog.String("background_id", id), slog.String("method", rt.Method),
			slog.String("route", rt.Path), slog.Int("status", a.Status), slog.Int("bytes", len(a.Body)),
			slog.Float64("duration_ms", float64(s.now().Sub(e.start).Microseconds())/1000),
		}
		if a.Status >= http.StatusInternalServerError {
			level = slog.LevelError
		}
		if a.Err != nil {
			attrs = append(attrs, slog.String("code", string(problem(a.Err, e.id).Code)), slog.Any("error", a.Err))
		}
		s.log.LogAttrs(context.Background(), level, "background request ended", attrs...) //nolint:forbidigo // The request is long over.
	}
}

// backgroundAfter reads how long the client wants to wait in line, and whether
// it said so at all.
func backgroundAfter(h http.Header) (time.Duration, bool, error) {
	given := h.Values(backgroundAfterHeader)
	if len(given) == 0 {
		return 0, false, nil
	}
	const limit = int(operation.MaxBackgroundAfter / time.Second)
	n, err := strconv.Atoi(given[0])
	if len(given) > 1 || err != nil || n < 0 || n > limit || given[0][0] == '+' {
		return 0, false, fault.BadField(backgroundAfterHeader, "%q is not one whole number from 0 to %d", clip(given[0]), limit).
			Hint("send a number of seconds, such as 5, or leave the header out")
	}
	return time.Duration(n) * time.Second, true, nil
}

// idempotencyKey reads the key, which only routes that make things take: on
// another POST it would promise what is not kept. Other methods can be repeated
// anyway.
func idempotencyKey(h http.Header, op Operation) (string, error) {
	given := h.Values(idempotencyHeader)
	switch {
	case len(given) == 0 || !op.Once && op.Method != http.MethodPost:
		return "", nil
	case !op.Once:
		return "", fault.BadField(idempotencyHeader, "this route does not take one").Hint("leave it out, and look before repeating the request")
	case len(given) > 1:
		return "", fault.BadField(idempotencyHeader, "is given %d times", len(given)).Hint("give it once")
	}
	return given[0], operation.CheckKey(given[0])
}
