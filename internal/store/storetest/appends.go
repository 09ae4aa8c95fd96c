package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

func testAppend(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	log := entries(0, 5)
	log[1].Body, log[1].Private = nil, []byte(`{"raw":1}`)
	log[2].Thread = id.New(id.Thread)
	name := create(t, w, log[:2]...)
	must(t, appendTo(w, name, 2, nil, log[2:4]...))
	must(t, appendTo(w, name, 4, nil, log[4]))
	if diff := cmp.Diff(log, wholeLog(t, w, name, 100)); diff != "" {
		t.Errorf("the log differs from what was appended (-want +got):\n%s", diff)
	}
	row := read(t, w, func(r store.Reader) (store.Session, error) { return r.Session(name) })
	if row.Head != 5 {
		t.Errorf("head is %d after five entries", row.Head)
	}
}

func testAppendRefuses(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	name := create(t, w, entries(0, 3)...)

	wants(t, "unknown session", appendTo(w, id.New(id.Session), 0, nil, entry(1)), store.ErrNotFound)
	wants(t, "head behind", appendTo(w, name, 2, nil, entry(3)), store.ErrConflict)
	wants(t, "head ahead", appendTo(w, name, 4, nil, entry(5)), store.ErrConflict)
	for what, log := range map[string][]session.Event{
		"a gap before":   {entry(5)},
		"a gap between":  {entry(4), entry(6)},
		"a repetition":   {entry(4), entry(4)},
		"an old entry":   {entry(3)},
		"position zero":  {entry(0)},
		"the wrong way":  {entry(5), entry(4)},
		"negative start": {entry(-1)},
	} {
		err := appendTo(w, name, 3, nil, log...)
		if err == nil || errors.Is(err, store.ErrConflict) {
			t.Errorf("%s: got %v, want an error that is no conflict", what, err)
		}
	}
	if got := len(wholeLog(t, w, name, 100)); got != 3 {
		t.Errorf("refused appends left %d entries of 3", got)
	}
}

func testAppendChangesRow(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	name := create(t, w, entry(1))
	step := func(step store.Append) store.Session {
		t.Helper()
		step.Session = name
		update(t, w, func(w store.Writer) error { return w.Append(step) })
		return read(t, w, func(r store.Reader) (store.Session, error) { return r.Session(name) })
	}
	want := store.Session{ID: name, Created: epoch}

	want.Head, want.Status, want.Wake = 3, "running", at(7)
	want.Config, want.ConfigSeq, want.State, want.StateSeq = []byte("\x00config"), 3, []byte{0xff, 0}, 3
	got := step(store.Append{Head: 1, Events: entries(1, 2), Status: want.Status, Wake: want.Wake, Config: want.Config, State: want.State})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a step with everything (-want +got):\n%s", diff)
	}

	want.Head = 4
	got = step(store.Append{Head: 3, Events: entries(3, 1), Status: want.Status, Wake: want.Wake})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a step without folds keeps those of before (-want +got):\n%s", diff)
	}

	want.Head, want.Status, want.Wake, want.Archived = 5, "idle", at(0).AddDate(-10, 0, 0).UTC(), at(9)
	want.State, want.StateSeq = []byte("later"), 5
	got = step(store.Append{Head: 4, Events: entries(4, 1), Status: want.Status, Wake: want.Wake, Archived: want.Archived, State: want.State})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a step that archives (-want +got):\n%s", diff)
	}

	want.Wake = got.Wake.AddDate(20, 0, 0)
	want.Config, want.ConfigSeq = []byte("without entries"), 5
	got = step(store.Append{Head: 5, Status: want.Status, Wake: want.Wake, Config: want.Config})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a step without entries (-want +got):\n%s", diff)
	}

	want.Head = 6
	want.Wake = step(store.Append{Head: 5, Events: entries(5, 1), Status: want.Status}).Wake
	if !want.Wake.IsZero() {
		t.Errorf("a step without a wake leaves it at %s", want.Wake)
	}
	got = read(t, w, func(r store.Reader) (store.Session, error) { return r.Session(name) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a step that rests (-want +got):\n%s", diff)
	}
}

// Writers that race for one log lose some races, and no entry.
func testAppendConcurrently(t *testing.T, fresh Fresh) {
	const writers, each = 16, 12
	w := fresh.workspace(t)
	name, other := create(t, w), create(t, w)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for done := 0; done < each; {
				row, err := view(w, func(r store.Reader) (store.Session, error) { return r.Session(name) })
				if err != nil {
					t.Error(err)
					return
				}
				switch err := appendTo(w, name, row.Head, nil, entries(row.Head, 2)...); {
				case err == nil:
					done++
				case !errors.Is(err, store.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	all.Go(func() {
		for head := range int64(each) {
			if err := appendTo(w, other, head, nil, entry(head+1)); err != nil {
				t.Error("a log that nobody else writes: ", err)
				return
			}
		}
	})
	all.Wait()
	for name, want := range map[string]int{name: writers * each * 2, other: each} {
		log := wholeLog(t, w, name, 333)
		if len(log) != want {
			t.Fatalf("log has %d entries, want %d", len(log), want)
		}
		seen := map[string]bool{}
		for i, e := range log {
			if e.Seq != int64(i)+1 || seen[e.ID] {
				t.Fatalf("entry %d has position %d and id %s (seen before: %t)", i, e.Seq, e.ID, seen[e.ID])
			}
			seen[e.ID] = true
		}
	}
}

// A reader that follows with a cursor while others write gets every entry, in order.
func testReadersSeeNoGap(t *testing.T, fresh Fresh) {
	const total, sessions = 90, 4
	w := fresh.workspace(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writers, readers sync.WaitGroup
	for range sessions {
		name := create(t, w)
		writers.Go(func() {
			for head := int64(0); head < total; head += 3 {
				if err := appendTo(w, name, head, nil, entries(head, 3)...); err != nil {
					t.Error(err)
					cancel()
					return
				}
			}
		})
		readers.Go(func() {
			for after := int64(0); after < total && ctx.Err() == nil; {
				err := w.View(ctx, func(r store.Reader) error {
					row, err := r.Session(name)
					if err != nil {
						return err
					}
					page, err := r.Events(name, store.EventQuery{After: after, Limit: total})
					for _, e := range page {
						if after++; e.Seq != after {
							t.Errorf("reader got position %d where %d follows", e.Seq, after)
							cancel()
						}
					}
					if err == nil && after != row.Head {
						t.Errorf("the row says head %d and the log ends at %d in one view", row.Head, after)
						cancel()
					}
					if after%3 != 0 {
						t.Errorf("reader sees %d entries: a part of a step", after)
						cancel()
					}
					return err
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	readers.Wait()
}

// Bytes come back as they were, whatever they are and however many.
func testPayloads(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	large := make([]byte, 5<<20)
	for i := range large {
		large[i] = byte(i * 7)
	}
	payloads := [][]byte{
		[]byte(`{"text":"a\u0000b"}`), []byte("a\x00b"), {0}, []byte("\xff\xfe\xed\xa0\x80"), []byte(`{"text":"\ud83d"}`),
		[]byte(`{"n":9007199254740993,"d":0.1000,"e":1e400,"z":-0,"a":1,"a":2}`), []byte("  { }\r\n"), []byte("'; DROP TABLE events; --"),
		large[:7900], large[:8000], large[:8001], large[:100<<10], large,
	}
	var log []session.Event
	for i, p := range payloads {
		e := entry(int64(i) + 1)
		e.Body, e.Private = p, slices.Clone(p)
		log = append(log, e)
	}
	name := create(t, w, log[0])
	must(t, appendTo(w, name, 1, nil, log[1:]...))
	for i, e := range wholeLog(t, w, name, 3) {
		if string(e.Body) != string(payloads[i]) || string(e.Private) != string(payloads[i]) {
			t.Errorf("payload %d (%.20q…, %d bytes) came back as %.20q… (%d bytes) and %.20q… (%d bytes)",
				i, payloads[i], len(payloads[i]), e.Body, len(e.Body), e.Private, len(e.Private))
		}
	}
}
