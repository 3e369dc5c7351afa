package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// StatusOf is the one table from codes to HTTP statuses; 0 means that the code
// is not one of the API's.
func StatusOf(code api.Code) int {
	switch code {
	case api.CodeBadRequest, api.CodeAgentUnsupported:
		return http.StatusBadRequest
	case api.CodeMissingCredentials, api.CodeInvalidAPIKey:
		return http.StatusUnauthorized
	case api.CodeForbidden:
		return http.StatusForbidden
	case api.CodeNotFound, api.CodeRouteNotFound:
		return http.StatusNotFound
	case api.CodeMethodNotAllowed:
		return http.StatusMethodNotAllowed
	case api.CodeConflict, api.CodeVMNonResponsive:
		return http.StatusConflict
	case api.CodePayloadTooLarge:
		return http.StatusRequestEntityTooLarge
	case api.CodeRangeNotSatisfiable:
		return http.StatusRequestedRangeNotSatisfiable
	case api.CodeLimitExceeded, api.CodeRateLimited:
		return http.StatusTooManyRequests
	case api.CodeUnavailable:
		return http.StatusServiceUnavailable
	case api.CodeBackgroundResultUnstorable:
		return http.StatusInsufficientStorage
	case api.CodeInternal:
		return http.StatusInternalServerError
	}
	return 0
}

// retryable reports whether the same request may succeed later though nobody
// changes anything. A code after which the request may have had an effect is
// never among them.
func retryable(code api.Code, reason api.Reason) bool {
	switch reason {
	case api.ReasonHostUnsupported, api.ReasonImageNotBuilt, api.ReasonSealingMissing, api.ReasonInterrupted:
		return false
	case api.ReasonRequestUnderWay:
		return true
	default:
	}
	return code == api.CodeRateLimited || code == api.CodeUnavailable
}

// problem is the envelope for err. Only a fault is shown; everything else, and
// a fault whose code has no status, is an internal error without detail.
func problem(err error, requestID string) api.Error {
	f := fault.As(err)
	if f == nil && errors.Is(err, context.Canceled) {
		f = &fault.Error{
			Code: api.CodeUnavailable, Reason: api.ReasonInterrupted, Message: "the request was cancelled before it was finished",
			Remedy: "look at what it left and send it again",
		}
	}
	if f == nil || f.Code == api.CodeInternal || StatusOf(f.Code) == 0 {
		return api.Error{
			Code: api.CodeInternal, Message: "internal error", RequestID: requestID,
			Remedy: "the daemon's log says what went wrong under this request id",
		}
	}
	return api.Error{
		Code: f.Code, Message: f.Message, Reason: f.Reason, Field: f.Field, Remedy: f.Remedy,
		Needed: f.Needed, Available: f.Available, RequestID: requestID,
		Retryable: retryable(f.Code, f.Reason),
	}
}

// fail answers with err and leaves it to the access log.
func (s *server) fail(e *exchange, err error) {
	e.err = err
	p := problem(err, e.id)
	if p.Code == api.CodeMissingCredentials || p.Code == api.CodeInvalidAPIKey {
		e.Header().Set("WWW-Authenticate", "Bearer")
	}
	// The envelope holds strings and numbers: it can always be encoded.
	_ = writeJSON(e, StatusOf(p.Code), p)
}
