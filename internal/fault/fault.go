// Package fault is the one error type that reaches users: a stable code, the
// field at fault and the remedy, wrapped around the technical cause.
//
// The domain and the drivers return it where a caller's next step depends on
// what happened; everything else is an ordinary wrapped error, which transports
// show as an internal error without detail. It imports api and the standard
// library only; anything in internal may import it.
package fault

import (
	"errors"
	"fmt"

	"github.com/pandovm/pando/api"
)

// Error is an error with a stable code. The zero Code is not valid.
type Error struct {
	Code    api.Code
	Reason  api.Reason
	Field   string
	Message string
	Remedy  string
	// Needed and Available are bytes, set when a resource ran out.
	Needed, Available int64
	// Err is the technical cause: logged, never shown to users.
	Err error
}

// Error returns the message followed by the cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the technical cause.
func (e *Error) Unwrap() error { return e.Err }

// With returns a copy of e that carries the cause err.
func (e *Error) With(err error) *Error {
	c := *e
	c.Err = err
	return &c
}

// Hint returns a copy of e that carries the remedy.
func (e *Error) Hint(format string, args ...any) *Error {
	c := *e
	c.Remedy = fmt.Sprintf(format, args...)
	return &c
}

// BadField says that a request field has an unacceptable value.
func BadField(field, format string, args ...any) *Error {
	return &Error{Code: api.CodeBadRequest, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)}
}

// NotFound says that no object of that kind ("vm", "snapshot") has that id or slug.
func NotFound(kind, id string) *Error {
	return &Error{
		Code: api.CodeNotFound, Message: fmt.Sprintf("no %s has the id or slug %q", kind, id),
		Remedy: fmt.Sprintf("list what exists with: pando %s ls", kind),
	}
}

// Conflict says that the request does not fit the present state of things.
func Conflict(reason api.Reason, format string, args ...any) *Error {
	return &Error{Code: api.CodeConflict, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// As returns the first fault in err's chain, or nil.
func As(err error) *Error {
	if f, ok := errors.AsType[*Error](err); ok {
		return f
	}
	return nil
}

// HasReason reports whether err carries that reason.
func HasReason(err error, reason api.Reason) bool {
	f := As(err)
	return f != nil && f.Reason == reason
}
