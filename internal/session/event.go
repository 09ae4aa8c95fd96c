package session

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Event is one entry of a session's log.
type Event struct {
	// Seq is the position in the log: 1, 2, 3 … without gaps. It alone orders events.
	Seq int64
	// ID is the public id. An input that waited has two entries with one id: queued, then delivered.
	ID string
	// Thread is the thread that the event belongs to; "" if it concerns the session as a whole.
	Thread string
	Type   string
	// At is when the entry was made, in whole microseconds, later than that of the entry before it.
	At time.Time
	// Queued marks an input that was accepted and has not been delivered to the agent yet. Its processed_at is null.
	Queued bool
	// Body is the public JSON, exactly as served. It is nil for an entry that only we need.
	Body jsontext.Value
	// Private is what only we need of the event. It is never served.
	Private jsontext.Value
}

// Public reports whether clients may see the event at all.
func (e Event) Public() bool { return e.Body != nil }
