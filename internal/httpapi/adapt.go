package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strconv"

	"github.com/pandovm/pando/internal/operation"
)

// handlerFunc answers a request, or returns the error to answer with and has
// written nothing.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// none is a body without fields, and an answer without a body.
type none struct{}

// call is one decoded request.
type call[Req any] struct {
	// ref is the id or slug in the path, decoded, and sub what the segment
	// {sub} of the path holds, if the route has one.
	ref, sub string
	query    query
	body     Req
	// seed is where the ids of everything that the request makes come from;
	// empty if they may be random.
	seed string
}

// useCase answers a decoded request.
type useCase[Req, Resp any] func(context.Context, call[Req]) (Resp, error)

// finder looks for what a use case made from the seed of the call before a
// daemon was killed. False means that it made nothing.
type finder[Req, Resp any] func(context.Context, call[Req]) (Resp, bool, error)

// work is a decoded request: what is left to do needs no connection.
type work struct {
	ref string
	// fingerprint is a digest of everything that makes the request what it is.
	fingerprint string
	do          func(ctx context.Context, seed string) (operation.Answer, error)
	find        func(ctx context.Context, seed string) (operation.Answer, bool, error)
}

// handle makes a route of a use case: it decodes what op says the route takes,
// calls f and answers with what f returns. A client may ask for the answer
// later.
func handle[Req, Resp any](op Operation, f useCase[Req, Resp]) route {
	return jsonRoute(op, f, nil)
}

// handleOnce is handle for a use case that makes things: a client may name a
// request with an Idempotency-Key, and repeating it then makes nothing twice.
func handleOnce[Req, Resp any](op Operation, f useCase[Req, Resp], find finder[Req, Resp]) route {
	op.Once = true
	return jsonRoute(op, f, find)
}

func jsonRoute[Req, Resp any](op Operation, f useCase[Req, Resp], find finder[Req, Resp]) route {
	op.JSON = true
	op.Request = bodyType[Req](op.Method == http.MethodPost)
	op.Response = bodyType[Resp](false)
	if op.MaxBody == 0 {
		op.MaxBody = MaxBodyBytes
	}
	return route{Operation: op, decode: func(w http.ResponseWriter, r *http.Request) (work, error) {
		in, err := decodeCall[Req](w, r, op)
		if err != nil {
			return work{}, err
		}
		return workOf(op, in, f, find)
	}}
}

func decodeCall[Req any](w http.ResponseWriter, r *http.Request, op Operation) (call[Req], error) {
	in := call[Req]{ref: r.PathValue("id"), sub: r.PathValue("sub")}
	var err error
	if in.query, err = parseQuery(r.URL.RawQuery, op.Query); err != nil || op.Request == nil {
		return in, err
	}
	return in, decodeBody(w, r, op, &in.body)
}

func workOf[Req, Resp any](op Operation, in call[Req], f useCase[Req, Resp], find finder[Req, Resp]) (work, error) {
	out := work{ref: in.ref, do: func(ctx context.Context, seed string) (operation.Answer, error) {
		in := in
		in.seed = seed
		resp, err := f(ctx, in)
		if err != nil {
			return operation.Answer{}, err
		}
		return success(op, resp)
	}}
	if find == nil {
		return out, nil
	}
	out.find = func(ctx context.Context, seed string) (operation.Answer, bool, error) {
		in := in
		in.seed = seed
		resp, found, err := find(ctx, in)
		if err != nil || !found {
			return operation.Answer{}, false, err
		}
		a, err := success(op, resp)
		return a, true, err
	}
	var err error
	out.fingerprint, err = fingerprint(op, in.ref, in.sub, in.body)
	return out, err
}

// fingerprint tells requests apart by what they ask for, whatever the spelling
// of their JSON.
func fingerprint(op Operation, ref, sub string, body any) (string, error) {
	text, err := json.Marshal([]any{op.ID, ref, sub, body})
	if err != nil {
		return "", fmt.Errorf("encode request: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

func success(op Operation, resp any) (operation.Answer, error) {
	if op.Response == nil {
		return operation.Answer{Status: op.Status}, nil
	}
	return jsonAnswer(op.Status, resp)
}

// jsonAnswer encodes before anything is written, so that a value that cannot be
// encoded is still an error answer.
func jsonAnswer(status int, v any) (operation.Answer, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return operation.Answer{}, fmt.Errorf("encode answer: %w", err)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	return operation.Answer{Status: status, Header: header, Body: body.Bytes()}, nil
}

// handleRaw makes a route whose handler reads the request's body and writes the
// answer itself, in streams. The handler returns an error only while it has
// written nothing.
func handleRaw(op Operation, f func(w http.ResponseWriter, r *http.Request, in call[none]) error) route {
	return route{Operation: op, handler: func(w http.ResponseWriter, r *http.Request) error {
		in := call[none]{ref: r.PathValue("id"), sub: r.PathValue("sub")}
		var err error
		if in.query, err = parseQuery(r.URL.RawQuery, op.Query); err != nil {
			return err
		}
		return f(w, r, in)
	}}
}

// bodyType is the type of a body, nil if there is none; posts have one even if
// it has no fields.
func bodyType[T any](post bool) reflect.Type {
	t := reflect.TypeFor[T]()
	if t == reflect.TypeFor[none]() && !post {
		return nil
	}
	return t
}

// writeJSON encodes first and writes then.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	a, err := jsonAnswer(status, v)
	if err != nil {
		return err
	}
	writeAnswer(w, a)
	return nil
}

func writeAnswer(w http.ResponseWriter, a operation.Answer) {
	h := w.Header()
	maps.Copy(h, a.Header)
	if a.Body != nil {
		h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	w.WriteHeader(a.Status)
	// The client may be gone; there is nobody left to tell.
	_, _ = w.Write(a.Body)
}
