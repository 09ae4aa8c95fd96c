package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/store"
)

// envelope is the wire's form of an error.
type envelope struct {
	Type    string        `json:"type"`
	Error   envelopeError `json:"error"`
	Request string        `json:"request_id"`
}

type envelopeError struct {
	Type    string           `json:"type"`
	Message string           `json:"message"`
	Details *envelopeDetails `json:"details,omitzero"`
}

type envelopeDetails struct {
	Code string `json:"error_code"`
}

// sendError is the one place where an error becomes an answer, and where one that is our fault is logged.
func (s *Server) sendError(w http.ResponseWriter, r *http.Request, request string, err error) {
	p := s.publicError(r, request, err)
	body := envelope{Type: "error", Error: envelopeError{Type: p.Kind.WireType(), Message: p.Message}, Request: request}
	if p.Code != "" {
		body.Error.Details = &envelopeDetails{p.Code}
	}
	if p.Final {
		w.Header().Set("X-Should-Retry", "false")
	}
	raw, err := json.Marshal(body)
	if err != nil {
		s.Log.Error("an error could not be told", "request", request, "error", err)
		raw = []byte(`{"type":"error","error":{"type":"api_error","message":"Internal server error"},"request_id":null}`)
	}
	send(w, &reply{status: p.Kind.Status(), body: raw})
}

// publicError is what a client may be told of an error.
func (s *Server) publicError(r *http.Request, request string, err error) *problem.Error {
	if p, ok := problem.As(err); ok {
		if p.Cause != nil {
			s.Log.Warn("a request was refused", "request", request, "path", r.URL.Path, "error", err)
		}
		return p
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return problem.NotFoundf("Not found")
	case errors.Is(err, store.ErrConflict):
		return problem.New(problem.Conflict, "It was changed by somebody else at the same time; try again.")
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		return problem.New(problem.Timeout, "The client went away.")
	}
	s.Log.Error("a request failed", "request", request, "method", r.Method, "path", r.URL.Path, "error", err)
	if errors.Is(err, store.ErrClosed) {
		return problem.New(problem.Unavailable, "The server is stopping; try again.")
	}
	return problem.New(problem.Internal, "Internal server error")
}
