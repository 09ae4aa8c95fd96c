package sandbox

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Call is one tool call that the log already holds: the intent is durable before a Call is made.
type Call struct {
	ID    string // the id of the agent.tool_use event; the same id is the same call, for ever
	Tool  string // bash | read | write | edit | glob | grep
	Input jsontext.Value
	// Repeatable says that running the call twice does no harm, so that one whose outcome was lost is simply run again.
	Repeatable bool
}

// Result is what the model is told of a call. Content is a JSON array of content blocks and never empty.
type Result struct {
	Content jsontext.Value
	IsError bool
}

// Spec says what the sandbox of a session must be like. It is a function of the session's log, so that a sandbox which
// is started again after a crash is the same.
type Spec struct {
	Session string // the session's id; one session has at most one sandbox
	Network Network
	Limits  Limits
	Uploads []Upload
}

// Network is the environment's policy for connections out of the sandbox.
type Network struct {
	// Mode is none | limited | unrestricted. Unrestricted reaches public addresses only.
	Mode  string
	Allow []string // with limited: host names and *.suffixes
}

// Limits bound what a sandbox may use. Zero fields take DefaultLimits.
type Limits struct {
	CPUs        float64       // cores
	MemoryBytes int64         // all processes together where the host can count them so, else each
	Processes   int           // at once
	OpenFiles   int           // of one process
	FileBytes   int64         // the largest file that can be written
	TmpBytes    int64         // size of /tmp
	Call        time.Duration // the longest that one call may run
	Idle        time.Duration // how long the sandbox stays up with nothing running
}

// DefaultLimits are the limits of an environment that sets none.
func DefaultLimits() Limits {
	return Limits{
		CPUs:        2,
		MemoryBytes: 4 << 30,
		Processes:   512,
		OpenFiles:   4096,
		FileBytes:   10 << 30,
		TmpBytes:    512 << 20,
		Call:        10 * time.Minute,
		Idle:        15 * time.Minute,
	}
}

// Upload is a file that the session was given, seen read-only inside.
type Upload struct {
	Path   string // absolute, below /mnt/session/uploads
	Source string // the file on the host
}

// Output is a file that the agent left in /mnt/session/outputs.
type Output struct {
	Path     string // relative to the outputs directory, slash-separated
	Size     int64
	Modified time.Time
}

// Report is what this host can enforce. It is made by really starting a sandbox and trying to misbehave in it.
type Report struct {
	// Isolation is full (a sandbox holds), none (the operator chose to run without) or unavailable (calls are refused).
	Isolation string
	Driver    string            // native | none
	Enforced  map[string]string // what is bounded, and by what: memory -> cgroup2 | cgroup1 | rlimit | no
	Problems  []Problem
}

// Problem is one thing that the host cannot do.
type Problem struct {
	What string
	Why  string
	Fix  string
}

// ErrOutcomeUnknown says that a call had been started and that whatever became of it is lost. The call may or may not
// have had its effects. It is never returned for a call that is Repeatable.
var ErrOutcomeUnknown = errors.New("the sandbox was lost while the call ran; its outcome is unknown")

// ErrAcknowledged says that the call was acknowledged before, so that its result is in the log. Who is told so holds an
// old view of the session.
var ErrAcknowledged = errors.New("the call has ended before and its result was acknowledged")

// UnavailableError says that this host cannot isolate, so that no call is run.
type UnavailableError struct{ Problems []Problem }

func (e *UnavailableError) Error() string {
	var b strings.Builder
	b.WriteString("sandbox unavailable")
	for _, p := range e.Problems {
		b.WriteString(": " + p.What + ": " + p.Why + ". Fix: " + p.Fix)
	}
	return b.String()
}

// Sandboxes runs the tool calls of sessions. Implementations are safe for concurrent use.
type Sandboxes interface {
	// Run returns the result of the call, and makes it happen at most once (I5, I6), whatever died before: a call that
	// was never heard of is started; one that runs is waited for; one that ended returns its receipt again. The sandbox
	// is started if it is not up. When ctx ends, Run returns its cause and the call goes on.
	Run(ctx context.Context, spec Spec, call Call) (Result, error)
	// Interrupt ends a running call, and everything that it started, within a second. Its Run returns a result that
	// says so and holds the output so far. A call that has not been started yet will not be: its result says that it
	// did not run. Interrupting a call that has ended changes nothing.
	Interrupt(ctx context.Context, session, call string) error
	// Acknowledge forgets the receipts of calls whose results are durable in the log.
	Acknowledge(ctx context.Context, session string, calls ...string) error
	// Outputs lists the regular files in /mnt/session/outputs, at most limit of them, in path order.
	Outputs(ctx context.Context, session string, limit int) ([]Output, error)
	// OpenOutput opens one of them. Nothing that the agent made (link, fifo, device) leads out of the directory or
	// blocks.
	OpenOutput(ctx context.Context, session, path string) (io.ReadCloser, error)
	// Stop ends the sandbox and every process in it. The files stay.
	Stop(ctx context.Context, session string) error
	// Destroy stops the sandbox and removes everything of the session.
	Destroy(ctx context.Context, session string) error
	// Report says what this host can enforce.
	Report() Report
}
