// Package problem is the closed set of errors that a client of the API can be told.
//
// A problem has a kind, which decides the HTTP status and the wire's error type; a message, which says what was wrong,
// where, and what to do, and is safe to show; and optionally a cause, which is only for the operator's log. Any other
// error that reaches the edge is an internal fault and its text is not shown.
package problem

import (
	"errors"
	"fmt"
	"net/http"
)

// Kind decides how a problem looks on the wire.
type Kind int

// The kinds, in the order of their HTTP status.
const (
	Invalid      Kind = iota + 1 // 400: the request, or the state it meets, does not allow it
	Unauthorized                 // 401
	Billing                      // 402
	Forbidden                    // 403
	NotFound                     // 404
	Method                       // 405
	Conflict                     // 409: somebody else changed it first
	Precondition                 // 412
	TooLarge                     // 413
	RateLimited                  // 429
	Internal                     // 500
	Unavailable                  // 503: this server cannot do it at present
	Timeout                      // 504
	Overloaded                   // 529
)

var kinds = map[Kind]struct {
	status   int
	wireType string
}{
	Invalid:      {http.StatusBadRequest, "invalid_request_error"},
	Unauthorized: {http.StatusUnauthorized, "authentication_error"},
	Billing:      {http.StatusPaymentRequired, "billing_error"},
	Forbidden:    {http.StatusForbidden, "permission_error"},
	NotFound:     {http.StatusNotFound, "not_found_error"},
	Method:       {http.StatusMethodNotAllowed, "invalid_request_error"},
	Conflict:     {http.StatusConflict, "conflict_error"},
	Precondition: {http.StatusPreconditionFailed, "invalid_request_error"},
	TooLarge:     {http.StatusRequestEntityTooLarge, "request_too_large"},
	RateLimited:  {http.StatusTooManyRequests, "rate_limit_error"},
	Internal:     {http.StatusInternalServerError, "api_error"},
	Unavailable:  {http.StatusServiceUnavailable, "api_error"},
	Timeout:      {http.StatusGatewayTimeout, "timeout_error"},
	Overloaded:   {529, "overloaded_error"},
}

// Status is the HTTP status of the kind.
func (k Kind) Status() int { return kinds[k].status }

// WireType is the value of error.type in the envelope.
func (k Kind) WireType() string { return kinds[k].wireType }

// Error is a problem that a client may be told.
type Error struct {
	Kind    Kind
	Message string
	// Code is error.details.error_code, from which the official clients choose their exception class; "" if none.
	Code string
	// Final says that sending the same request again cannot succeed, so that clients which retry this status do not.
	Final bool
	// Cause is for the operator's log only.
	Cause error
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Cause }

// New makes a problem of this kind.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Invalidf is the commonest problem: a request that cannot be accepted.
func Invalidf(format string, args ...any) *Error { return New(Invalid, format, args...) }

// NotFoundf says that a thing does not exist for this caller. It never tells whether it exists for another.
func NotFoundf(format string, args ...any) *Error { return New(NotFound, format, args...) }

// Conflictf says that the thing was changed by somebody else, and that the same request cannot succeed.
func Conflictf(format string, args ...any) *Error {
	e := New(Conflict, format, args...)
	e.Final = true
	return e
}

// WithCode returns e with an error code.
func (e *Error) WithCode(code string) *Error {
	c := *e
	c.Code = code
	return &c
}

// As returns the problem in err's chain, if there is one.
func As(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}
