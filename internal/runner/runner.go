// Package runner performs what a session needs next: it drives one session's turns under a lease.
//
// # Authority
//
// The log. A drive is a loop of: fold, decide, append what follows from the log, perform one effect. What an effect
// brought is held in memory only until it is in the log. If the log has moved on meanwhile (a client sent something), the
// step is built again on the state as it is then: an answer that arrives together with an interrupt is judged by whichever
// was logged first.
//
// # Invariants
//
//   - Intent before effect: a model request is made after its start is durable, a tool call after its event is durable.
//   - Outcome before consequence: nothing is decided on an answer or a result that is not durable yet.
//   - One drive per lease. A drive whose lease is over (store.ErrFenced) ends its effects and appends nothing.
//   - A drive holds no state that another drive needs: when the process dies, the next drive folds the log and goes on.
//
// # Failures
//
//	a model attempt fails              logged; again later by the retry policy, or the turn ends with retries_exhausted
//	the store refuses for a while      the outcome is held, and the append tried again until the drive is told to end
//	the sandbox lost a call            the call gets a result that says its outcome is unknown (unless it is repeatable)
//	the process is told to stop        effects are left: the sandbox goes on, an open request is abandoned by the next drive
//	the drive itself panics            the turn ends with an error; other sessions go on
package runner

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/singleflight"

	"github.com/perdure/perdure/internal/bus"
	"github.com/perdure/perdure/internal/ledger"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sandbox"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/tool/web"
)

// Prices knows what a request costs.
type Prices interface {
	// Cost is the list cost of what a request to a model used, confined to a part of the world or not (""); false if the
	// model has no list price.
	Cost(model, geo string, usage model.Usage) (session.Cost, bool)
}

// Files knows the files of a workspace.
type Files interface {
	// Open opens the content of a file.
	Open(ctx context.Context, workspace, file string) (content io.ReadCloser, mediaType string, err error)
	// Path is where the content of a file is on this host.
	Path(ctx context.Context, workspace, file string) (string, error)
	// Collect makes files of what a session left in its outputs directory.
	Collect(ctx context.Context, workspace, session string) error
}

// Retry says how failed attempts are made again.
type Retry struct {
	Attempts int           // in a row, with the first; default 6
	Base     time.Duration // the wait after the first failure, doubled after each; default 1 s
	Cap      time.Duration // the longest wait that was not asked for by the provider; default 60 s
	// MaxWait is the longest wait that a provider may ask for; default 1 h. A longer one ends the turn.
	MaxWait time.Duration
}

func (r Retry) withDefaults() Retry {
	if r.Attempts == 0 {
		r.Attempts = 6
	}
	if r.Base == 0 {
		r.Base = time.Second
	}
	if r.Cap == 0 {
		r.Cap = time.Minute
	}
	if r.MaxWait == 0 {
		r.MaxWait = time.Hour
	}
	return r
}

// Options is what a Runner is made of. All but Retry, Limits and Failpoint are required.
type Options struct {
	Store     store.Store
	Ledger    *ledger.Ledger
	Bus       *bus.Bus
	Models    model.Provider
	Prices    Prices
	Sandboxes sandbox.Sandboxes
	Web       *web.Tools
	Files     Files
	Log       *slog.Logger
	Retry     Retry
	Limits    session.Limits
	// MaxTokens bounds one answer of the model.
	MaxTokens int
	// Failpoint is called at the named points of a drive, so that tests can kill the process there.
	Failpoint func(name string)
}

// Runner drives sessions. It is safe for concurrent use, one drive at a time for each session.
type Runner struct {
	Options
	contexts *contexts
	erasures singleflight.Group
}

// New makes a Runner.
func New(options Options) *Runner {
	options.Retry = options.Retry.withDefaults()
	if options.Limits == (session.Limits{}) {
		options.Limits = session.DefaultLimits()
	}
	if options.MaxTokens == 0 {
		options.MaxTokens = 32_000
	}
	if options.Failpoint == nil {
		options.Failpoint = func(string) {}
	}
	return &Runner{Options: options, contexts: newContexts()}
}

var noOutput = session.TextContent("(no output)")

func result(content jsontext.Value, isError bool) session.Result {
	if len(content) == 0 || string(content) == "[]" {
		content = noOutput
	}
	return session.Result{Content: content, IsError: isError}
}

func failed(text string) session.Result {
	return session.Result{Content: session.TextContent(text), IsError: true}
}
