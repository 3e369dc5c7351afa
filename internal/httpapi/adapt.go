package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
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
}

// handle makes a route of a use case: it decodes what op says the route takes,
// calls f and writes what f returns.
func handle[Req, Resp any](op Operation, f func(context.Context, call[Req]) (Resp, error)) route {
	op.Request = bodyType[Req](op.Method == http.MethodPost)
	op.Response = bodyType[Resp](false)
	if op.MaxBody == 0 {
		op.MaxBody = MaxBodyBytes
	}
	return route{op, func(w http.ResponseWriter, r *http.Request) error {
		in := call[Req]{ref: r.PathValue("id"), sub: r.PathValue("sub")}
		var err error
		if in.query, err = parseQuery(r.URL.RawQuery, op.Query); err != nil {
			return err
		}
		if op.Request != nil {
			if err := decodeBody(w, r, op, &in.body); err != nil {
				return err
			}
		}
		out, err := f(r.Context(), in)
		if err != nil {
			return err
		}
		if op.Response == nil {
			w.WriteHeader(op.Status)
			return nil
		}
		return writeJSON(w, op.Status, out)
	}}
}

// handleRaw makes a route whose handler reads the request's body and writes the
// answer itself, in streams. The handler returns an error only while it has
// written nothing.
func handleRaw(op Operation, f func(w http.ResponseWriter, r *http.Request, in call[none]) error) route {
	return route{op, func(w http.ResponseWriter, r *http.Request) error {
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

// writeJSON encodes first and writes then, so that a value that cannot be
// encoded is still an error answer.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	// The client may be gone; there is nobody left to tell.
	_, _ = w.Write(body.Bytes())
	return nil
}
