// Package api is the HTTP edge: the wire of the Claude Managed Agents API under /v1, and our own additions under
// /perdure/v1.
//
// Handlers are stateless: what a request means is decided by the store's content and the session's log alone, so any
// instance serves any request. A write is answered after it is durable. A POST with an Idempotency-Key is answered the
// same way again however often it is sent: the answer is stored in the transaction of its effect.
package api

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/bus"
	"github.com/perdure/perdure/internal/files"
	"github.com/perdure/perdure/internal/ledger"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

// Models knows the models that sessions can use.
type Models interface {
	// List returns the models that are known by name, newest first.
	List(ctx context.Context) []model.Info
	// DefaultEffort is the effort of a model for which none is given; "" if the model is not known.
	DefaultEffort(model string) string
	// TakesSystemMessages reports whether a model takes system messages in the middle of a conversation.
	TakesSystemMessages(model string) bool
	// Priced reports whether a model has a list price, so that a budget can bound it.
	Priced(model string) bool
}

// Options is what the API is made of. All but Keepalive and Failpoint are required.
type Options struct {
	Store  store.Store
	Ledger *ledger.Ledger
	Bus    *bus.Bus
	Files  *files.Files
	Models Models
	// Wake says that there may be work for a session.
	Wake func(session string)
	// Erase removes a session whose deletion is in its log.
	Erase func(ctx context.Context, workspace, session string) error
	// StopSandbox ends the sandbox of a session that needs it no more.
	StopSandbox func(ctx context.Context, session string) error
	// RuntimeRate is what an hour of running costs in new sessions.
	RuntimeRate session.Cost
	Keys        Keys
	Log         *slog.Logger
	// Health says why the server cannot work, or nil.
	Health func(ctx context.Context) error
	// Keepalive is how often a quiet stream gets a ping; default 8 s.
	Keepalive time.Duration
	// Failpoint is called at the named points of a change to a session, so that tests can kill the process there.
	Failpoint func(name string)
}

// Keys makes API keys.
type Keys interface {
	Create(ctx context.Context, workspace, name string) (secret string, key store.Key, err error)
}

// Server is the API.
type Server struct {
	Options
	handler http.Handler
}

// New makes the API.
func New(options Options) *Server {
	if options.Keepalive == 0 {
		options.Keepalive = 8 * time.Second
	}
	if options.Failpoint == nil {
		options.Failpoint = func(string) {}
	}
	s := &Server{Options: options}
	s.handler = s.routes()
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

func (s *Server) defaults() resource.Defaults {
	return resource.Defaults{DefaultEffort: s.Models.DefaultEffort}
}

// Limits of requests, in bytes.
const (
	maxBody   = 32 << 20
	maxUpload = files.MaxSize + 1<<20 // the file and the form around it
)

func closeBody(c io.Closer) { _ = c.Close() } // nothing was written: there is nothing to lose
