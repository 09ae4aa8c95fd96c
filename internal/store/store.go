// Package store is the durable log of sessions and the records around them.
//
// # Authority
//
// The database is the only truth. A cache elsewhere may hold a fold of a log up to some position; it proves itself by the
// head that it names when it appends.
//
// # Invariants
//
//   - A write is acknowledged only when it is on disk (I1). Update returns after the commit, never before.
//   - The positions of a session's log have no gaps, and no reader sees n+1 before n (I2): a position is given inside the
//     write transaction, and write transactions of one session do not overlap.
//   - An append names the head that it was made for, and is refused with ErrConflict if the log has moved on.
//   - An append under a lease whose epoch is not the session's current one is refused with ErrFenced (I3).
//   - Tenant data is reachable only through In(workspace): there is no query on it without the workspace (I8).
//   - A log entry is never changed. Deleting a session removes all of it in one transaction (I10).
//
// # Failure
//
// A write that fails has no effect at all, except when the outcome of a commit is itself unknown (a connection lost in
// the middle of it): then the error wraps ErrOutcomeUnknown and the caller reads back before it tries again.
// Writers that arrive together share one commit (group commit): each keeps its own success or failure.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/session"
)

// The ways in which a store refuses.
var (
	// ErrNotFound says that no such row exists in this workspace.
	ErrNotFound = errors.New("store: not found")
	// ErrConflict says that the log or the record was changed since the caller read it: read again, decide again.
	ErrConflict = errors.New("store: changed by somebody else")
	// ErrFenced says that the caller's lease on the session is over: stop working on it.
	ErrFenced = errors.New("store: lease is no longer held")
	// ErrHeld says that another live node holds the lease.
	ErrHeld = errors.New("store: lease is held by another node")
	// ErrOutcomeUnknown says that a commit may or may not have happened.
	ErrOutcomeUnknown = errors.New("store: outcome of the commit is unknown")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store: closed")
	// ErrKeyReused says that an idempotency key came back with a different request.
	ErrKeyReused = errors.New("store: idempotency key was used for a different request")
)

// Store is a durable store. Implementations are safe for concurrent use.
type Store interface {
	// In is the only way to tenant data.
	In(workspace string) Workspace
	System
	Close() error
}

// Workspace reads and writes the data of one tenant.
type Workspace interface {
	// View runs read on one consistent snapshot.
	View(ctx context.Context, read func(Reader) error) error
	// Update runs write in one transaction and returns when it is durable. If write returns an error, nothing is
	// written and the error is returned as it is. Write must be short, must not block, and may be run only on the
	// store's own goroutine: it must not touch what the caller shares without synchronisation.
	Update(ctx context.Context, write func(Writer) error) error
}

// Kind names a kind of document.
type Kind string

// The kinds of documents.
const (
	Agents       Kind = "agents"
	Environments Kind = "environments"
	Files        Kind = "files"
)

// Document is a record that is read and written as a whole. Ids sort by creation.
type Document struct {
	ID       string
	Body     jsontext.Value // the wire form, and whatever else its owner keeps
	Created  time.Time
	Archived time.Time // zero if it is not
	Scope    string    // files: the session that owns it, "" if none does
	Content  string    // files: the hash of the blob that they are the name of, "" if none
}

// DocumentQuery selects documents of a kind.
type DocumentQuery struct {
	After           string // the id after which the page begins, in the query's order; "" for the first page
	Ascending       bool   // oldest first; the default is newest first
	Limit           int    // > 0
	IncludeArchived bool
	CreatedFrom     time.Time // inclusive; zero for no bound
	CreatedTo       time.Time // inclusive; zero for no bound
	Scope           string    // "" for any
	IDs             []string  // nil for any
}

// Version is one saved version of a document.
type Version struct {
	ID      string // of the document
	Version int64
	Body    jsontext.Value
	Created time.Time
}

// Session is a session's row: what lists and the engine need without folding its log. All of it but the lease follows
// from the log.
type Session struct {
	ID           string
	AgentID      string
	AgentVersion int64
	Environment  string
	Deployment   string // "" if none made it
	Status       string
	Created      time.Time
	Archived     time.Time // zero if it is not
	Head         int64     // position of the last log entry
	// Wake is when the session wants to be driven; zero if it rests.
	Wake time.Time
	// Config and State are folds of the log, each up to its own position. They save reading the log from its start.
	Config    []byte
	ConfigSeq int64
	State     []byte
	StateSeq  int64
}

// SessionQuery selects sessions. Sessions are ordered by creation.
type SessionQuery struct {
	After           string // the id after which the page begins, in the query's order
	Ascending       bool
	Limit           int // > 0
	AgentID         string
	AgentVersion    int64 // 0 for any
	Environment     string
	Deployment      string
	Statuses        []string // nil for any
	IncludeArchived bool
	CreatedFrom     time.Time // inclusive
	CreatedAfter    time.Time // exclusive
	CreatedTo       time.Time // inclusive
	CreatedBefore   time.Time // exclusive
}

// EventQuery selects entries of one session's log.
type EventQuery struct {
	After      int64 // entries with a larger Seq (ascending) or a smaller one (descending); 0 for the first page
	Descending bool
	Limit      int // > 0
	// MaxBytes ends a page early, after the entry that reaches it; 0 for no bound. A page has at least one entry.
	MaxBytes int64
	// All also returns private entries and queued entries that were delivered since. Otherwise entries are public, and
	// of an input that waited only the latest form is returned.
	All    bool
	Thread string   // "" for any
	Types  []string // nil for any
	// Bounds of At: From and To are inclusive, Since and Until exclusive; zero for none.
	From, Since, To, Until time.Time
}

// Append is one step of a session's log.
type Append struct {
	Session string
	// Head is the position that the caller believes to be the last. Events begin at Head+1.
	Head   int64
	Events []session.Event
	// Lease must be current if it is not nil. Inputs of clients are appended without one.
	Lease *Lease
	// Status and Wake replace those of the row.
	Status string
	Wake   time.Time
	// Archived is set on the row if it is not zero.
	Archived time.Time
	// Config and State replace the row's folds if they are not nil; they are folds up to the last of Events.
	Config []byte
	State  []byte
}

// Reader reads one tenant's data.
type Reader interface {
	Document(kind Kind, id string) (Document, error)
	Documents(kind Kind, query DocumentQuery) ([]Document, error)
	Version(kind Kind, id string, version int64) (Version, error)
	// Versions returns the versions of a document, newest first, those below before (0 for all).
	Versions(kind Kind, id string, before int64, limit int) ([]Version, error)
	Session(id string) (Session, error)
	Sessions(query SessionQuery) ([]Session, error)
	// Events returns entries of a log. A session that does not exist has none.
	Events(session string, query EventQuery) ([]session.Event, error)
	// Event returns the latest entry with this public id.
	Event(session, id string) (session.Event, error)
	// Recall returns what was remembered under an idempotency key. It returns ErrKeyReused if fingerprint differs, and
	// ErrNotFound if the key is unknown.
	Recall(key, fingerprint string) (Remembered, error)
}

// Writer reads and writes one tenant's data inside a transaction. It sees its own writes.
type Writer interface {
	Reader
	// Put inserts or replaces a document.
	Put(kind Kind, document Document) error
	Delete(kind Kind, id string) error
	// PutVersion inserts a version; ErrConflict if it exists.
	PutVersion(kind Kind, version Version) error
	// CreateSession inserts a session's row with the first entries of its log.
	CreateSession(row Session, events []session.Event) error
	Append(step Append) error
	// DeleteSession removes the row, the log, the files in its scope, and what was remembered about it.
	DeleteSession(id string) error
	// Remember stores an answer under an idempotency key.
	Remember(key, fingerprint string, answer Remembered) error
}

// Remembered is the answer that a request with an idempotency key was given.
type Remembered struct {
	Status int
	Body   []byte
	At     time.Time
	// Session is the session that the answer is about, "" if none: the answer goes when the session is deleted. Recall
	// does not return it.
	Session string
}

// Lease is the right to append steps to a session.
type Lease struct {
	Session   string
	Workspace string
	Node      string
	Epoch     int64
}

// Due is a session that wants to be driven.
type Due struct {
	Session   string
	Workspace string
	Wake      time.Time
}

// Key is an API key without its secret.
type Key struct {
	ID        string
	Workspace string
	Name      string
	Hint      string // the first characters of the secret, to recognise it by
	Hash      [32]byte
	Created   time.Time
	Revoked   time.Time // zero if it is not
}

// System is what the server itself needs, across tenants. It returns ids and never content.
type System interface {
	// Join makes a node known as alive for ttl. Renew prolongs it, and returns ErrFenced if the node is no longer known
	// as alive. Leave ends it.
	Join(ctx context.Context, node string, ttl time.Duration) error
	Renew(ctx context.Context, node string, ttl time.Duration) error
	Leave(ctx context.Context, node string) error
	// Acquire gives the node the lease of a session. A node that holds it already gets the same lease again. ErrHeld if
	// another live node holds it, ErrNotFound if there is no such session.
	Acquire(ctx context.Context, node, session string) (Lease, error)
	// Due returns sessions whose Wake is not after now, the earliest first.
	Due(ctx context.Context, now time.Time, limit int) ([]Due, error)
	// NextWake returns the earliest Wake after now; zero if there is none.
	NextWake(ctx context.Context, now time.Time) (time.Time, error)

	CreateWorkspace(ctx context.Context, id, name string) error
	// Workspaces returns the ids of all workspaces, oldest first.
	Workspaces(ctx context.Context) ([]string, error)
	PutKey(ctx context.Context, key Key) error
	// KeyByHash returns the key with this hash, revoked or not.
	KeyByHash(ctx context.Context, hash [32]byte) (Key, error)
	Keys(ctx context.Context) ([]Key, error)
	RevokeKey(ctx context.Context, id string, at time.Time) error
	// ForgetAnswers removes remembered answers older than before.
	ForgetAnswers(ctx context.Context, before time.Time) error
	// ContentUsed reports whether any document has this content.
	ContentUsed(ctx context.Context, content string) (bool, error)
	// Ping reports whether the store can write.
	Ping(ctx context.Context) error
}
