// Package storetest is what every store must do, as tests. A store's own tests run it and add what is special to them.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

// Fresh makes an empty database and returns a function that opens it. The suite opens a database again only after it
// closed the store, and always closes it.
type Fresh func(t *testing.T) (open func(t *testing.T) store.Store)

// Run runs the suite.
func Run(t *testing.T, fresh Fresh) {
	// This one measures allocations, so it must not share the process with others.
	t.Run("BigLog", func(t *testing.T) { testBigLog(t, fresh) })

	for name, test := range map[string]func(*testing.T, Fresh){
		"Append":              testAppend,
		"AppendRefuses":       testAppendRefuses,
		"AppendChangesRow":    testAppendChangesRow,
		"AppendConcurrently":  testAppendConcurrently,
		"ReadersSeeNoGap":     testReadersSeeNoGap,
		"Payloads":            testPayloads,
		"EventPages":          testEventPages,
		"EventFilters":        testEventFilters,
		"EqualTimes":          testEqualTimes,
		"WaitingInputs":       testWaitingInputs,
		"EventByID":           testEventByID,
		"PageBytes":           testPageBytes,
		"CreateSession":       testCreateSession,
		"SessionPages":        testSessionPages,
		"SessionFilters":      testSessionFilters,
		"DeleteSession":       testDeleteSession,
		"Documents":           testDocuments,
		"DocumentPages":       testDocumentPages,
		"ContentUsed":         testContentUsed,
		"Versions":            testVersions,
		"Answers":             testAnswers,
		"Isolation":           testIsolation,
		"Durability":          testDurability,
		"UpdateIsAtomic":      testUpdateIsAtomic,
		"UpdateSeesItsWrites": testUpdateSeesItsWrites,
		"UpdatesFailAlone":    testUpdatesFailAlone,
		"ViewIsASnapshot":     testViewIsASnapshot,
		"ContextEnds":         testContextEnds,
		"Closed":              testClosed,
		"Lease":               testLease,
		"LeaseFences":         testLeaseFences,
		"LeaseOfADeadNode":    testLeaseOfADeadNode,
		"LeaseIsGivenToOne":   testLeaseIsGivenToOne,
		"Renew":               testRenew,
		"Wake":                testWake,
		"Workspaces":          testWorkspaces,
		"Keys":                testKeys,
		"AgainstModel":        testAgainstModel,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, fresh)
		})
	}
}

// open opens an empty database for the length of a test.
func (fresh Fresh) open(t *testing.T) store.Store {
	t.Helper()
	return closeAtEnd(t, fresh(t)(t))
}

func closeAtEnd(t *testing.T, s store.Store) store.Store {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s
}

// workspace opens an empty database and gives one tenant of it.
func (fresh Fresh) workspace(t *testing.T) store.Workspace {
	t.Helper()
	return fresh.open(t).In(id.New(id.Workspace))
}

// checker is what the suite needs of a test, be it one of package testing or of rapid.
type checker interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// epoch is when the suite's times begin.
var epoch = time.Date(2026, 3, 29, 0, 59, 59, 999_990_000, time.UTC)

// at is a time that many microseconds later.
func at(micro int64) time.Time { return epoch.Add(time.Duration(micro) * time.Microsecond) }

func must(t checker, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants fails unless err is the expected refusal; nil expects success.
func wants(t checker, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got error %v, want %v", what, err, want)
	}
}

// update must succeed.
func update(t checker, w store.Workspace, write func(store.Writer) error) {
	t.Helper()
	must(t, w.Update(context.Background(), write))
}

// view returns what is read, and the error of reading it.
func view[T any](w store.Workspace, read func(store.Reader) (T, error)) (T, error) {
	var result T
	err := w.View(context.Background(), func(r store.Reader) (err error) {
		result, err = read(r)
		return err
	})
	return result, err
}

// read must succeed.
func read[T any](t checker, w store.Workspace, read func(store.Reader) (T, error)) T {
	t.Helper()
	result, err := view(w, read)
	must(t, err)
	return result
}

// entry makes a public log entry whose time follows from its position.
func entry(seq int64) session.Event {
	return session.Event{
		Seq:  seq,
		ID:   id.New(id.Event),
		Type: "agent.message",
		At:   at(seq),
		Body: jsontext.Value(fmt.Sprintf(`{"n":%d}`, seq)),
	}
}

// entries makes n log entries that follow after head.
func entries(head int64, n int) []session.Event {
	made := make([]session.Event, n)
	for i := range made {
		made[i] = entry(head + int64(i) + 1)
	}
	return made
}

// create makes a session with a log and returns its id.
func create(t checker, w store.Workspace, log ...session.Event) string {
	t.Helper()
	name := id.New(id.Session)
	update(t, w, func(w store.Writer) error {
		return w.CreateSession(store.Session{ID: name, Status: "idle", Created: epoch, Head: int64(len(log))}, log)
	})
	return name
}

// appendTo appends a step that changes nothing but the log.
func appendTo(w store.Workspace, name string, head int64, lease *store.Lease, log ...session.Event) error {
	return w.Update(context.Background(), func(w store.Writer) error {
		return w.Append(store.Append{Session: name, Head: head, Events: log, Lease: lease, Status: "running"})
	})
}

// wholeLog reads all entries in pages of that many.
func wholeLog(t checker, w store.Workspace, name string, limit int) []session.Event {
	t.Helper()
	return read(t, w, func(r store.Reader) ([]session.Event, error) {
		var all []session.Event
		for after := int64(0); ; {
			page, err := r.Events(name, store.EventQuery{After: after, Limit: limit, All: true})
			if err != nil || len(page) == 0 {
				return all, err
			}
			all = append(all, page...)
			after = page[len(page)-1].Seq
		}
	})
}
