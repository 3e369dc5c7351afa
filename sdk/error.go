package pando

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/pandovm/pando/api"
)

// CodeUnknown is the code of an error answer that is not Pando's envelope, for
// example one made by a proxy.
const CodeUnknown api.Code = "UNKNOWN_ERROR"

// StatusError is an answer outside 2xx. errors.As finds the *api.Error in it.
type StatusError struct {
	Method, Path string
	// Status is the HTTP status.
	Status int
	// API is the error envelope; never nil.
	API *api.Error
}

// Error returns the call and the envelope's code and message.
func (e *StatusError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Method, e.Path, e.API.Error())
}

// Unwrap returns the envelope.
func (e *StatusError) Unwrap() error { return e.API }

// TransportError says that a call got no usable answer. Unless the daemon
// could not be reached at all, the call may have been carried out.
type TransportError struct {
	Method, URL string
	// Unreached is true if the request was certainly not delivered.
	Unreached bool
	// Remedy says what the caller can do about it.
	Remedy string
	// Err is the cause.
	Err error
	// foreign is true if there was an answer, and it was not a daemon's.
	foreign bool
}

// Error returns the call and the cause.
func (e *TransportError) Error() string {
	if e.Unreached {
		return fmt.Sprintf("cannot reach the daemon at %s: %v", e.URL, e.Err)
	}
	return fmt.Sprintf("no usable answer to %s %s: %v", e.Method, e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *TransportError) Unwrap() error { return e.Err }

func statusError(method, path string, resp *http.Response, body []byte) error {
	e := new(api.Error)
	if err := json.Unmarshal(body, e); err != nil || e.Code == "" {
		e = &api.Error{Code: CodeUnknown, Message: "the server answered " + resp.Status + firstLine(body)}
	}
	if e.Message == "" {
		e.Message = "the server gave no explanation (HTTP " + resp.Status + ")"
	}
	if e.RequestID == "" {
		e.RequestID = resp.Header.Get("X-Request-Id")
	}
	return &StatusError{Method: method, Path: path, Status: resp.StatusCode, API: e}
}

// firstLine shows the start of a foreign body: usually it names the proxy or
// the service that answered.
func firstLine(body []byte) string {
	const limit = 200
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	if line == "" || strings.HasPrefix(line, "<") {
		return ""
	}
	return ": " + strings.ToValidUTF8(line[:min(limit, len(line))], "?")
}

func (c *Client) transportError(ctx context.Context, method, path string, err error) error {
	if ended := ctx.Err(); ended != nil {
		if why := context.Cause(ctx); !errors.Is(why, ended) {
			return fmt.Errorf("%s %s: %w: %w", method, path, ended, why)
		}
		return fmt.Errorf("%s %s: %w", method, path, ended)
	}
	unreached := notDelivered(err)
	e := &TransportError{Method: method, URL: c.base + path, Unreached: unreached, Remedy: remedyFor(err, unreached), Err: cause(err)}
	if unreached {
		e.URL = c.base
	}
	return e
}

func (c *Client) foreignAnswer(method, path string, err error) error {
	return &TransportError{
		Method: method, URL: c.base + path, Err: fmt.Errorf("decode answer: %w", err),
		foreign: true,
		Remedy:  "something other than Pando seems to answer there: check the address",
	}
}

// notDelivered reports whether the failure came before the request was sent.
func notDelivered(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || (errors.As(err, &op) && op.Op == "dial") || isTLS(err)
}

func isTLS(err error) bool {
	var header tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &header) || errors.As(err, &verify) || errors.As(err, &authority)
}

// remedyFor goes from the most certain diagnosis to the least.
func remedyFor(err error, unreached bool) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "is the daemon running? start it with: pando serve"
	case errors.As(err, &dns):
		return "the host name does not resolve: check the address"
	case isTLS(err):
		return "check that the address has the right scheme (http or https) and that its certificate is trusted"
	case unreached:
		return "check the address and that the daemon runs there: pando serve"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return "the daemon went away in the middle; the call may have been carried out, so look before repeating it"
	default:
		return "check the address and that a Pando daemon answers there"
	}
}

// cause drops the one layer of wrapping that repeats the method and the URL.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op
	}
	type urlError interface{ Unwrap() error }
	if u, ok := err.(urlError); ok {
		if inner := u.Unwrap(); inner != nil {
			return inner
		}
	}
	return err
}
