package storetest

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

// pages joins the pages of a query.
func pages(t checker, w store.Workspace, name string, query store.EventQuery) []session.Event {
	t.Helper()
	var all []session.Event
	for {
		page := read(t, w, func(r store.Reader) ([]session.Event, error) { return r.Events(name, query) })
		if len(page) > query.Limit {
			t.Fatalf("page of %d entries at limit %d", len(page), query.Limit)
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		query.After = page[len(page)-1].Seq
	}
}

func positions(log []session.Event) []int64 {
	seqs := []int64{}
	for _, e := range log {
		seqs = append(seqs, e.Seq)
	}
	return seqs
}

func testEventPages(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	name := create(t, w, entries(0, 50)...)
	create(t, w, entries(0, 9)...)
	up := pages(t, w, name, store.EventQuery{Limit: 7})
	down := pages(t, w, name, store.EventQuery{Limit: 7, Descending: true})
	slices.Reverse(down)
	if len(up) != 50 {
		t.Fatalf("ascending pages have %d entries of 50", len(up))
	}
	if diff := cmp.Diff(up, down); diff != "" {
		t.Errorf("descending pages differ from ascending ones (-up +down):\n%s", diff)
	}

	// A cursor stays where it is while the log grows.
	first := read(t, w, func(r store.Reader) ([]session.Event, error) {
		return r.Events(name, store.EventQuery{Limit: 7, Descending: true})
	})
	must(t, appendTo(w, name, 50, nil, entries(50, 5)...))
	rest := pages(t, w, name, store.EventQuery{Limit: 7, Descending: true, After: first[6].Seq})
	if joined := append(positions(first), positions(rest)...); len(joined) != 50 || !slices.IsSortedFunc(joined, func(a, b int64) int { return int(b - a) }) {
		t.Errorf("a descending cursor moved: %v", joined)
	}
	if rest := pages(t, w, name, store.EventQuery{Limit: 7, After: up[49].Seq}); len(rest) != 5 {
		t.Errorf("an ascending cursor found %d of 5 later entries", len(rest))
	}
	if _, err := view(w, func(r store.Reader) ([]session.Event, error) { return r.Events(name, store.EventQuery{}) }); err == nil {
		t.Error("a page without a limit was given")
	}
	if none := pages(t, w, id.New(id.Session), store.EventQuery{Limit: 7}); len(none) != 0 {
		t.Errorf("a session that does not exist has %d entries", len(none))
	}
}

func testEventFilters(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	log := entries(0, 9)
	thread := id.New(id.Thread)
	log[1].Thread, log[4].Thread = thread, thread
	log[2].Type, log[4].Type, log[5].Type = "user.message", "user.message", "span"
	log[6].Body = nil
	name := create(t, w, log...)
	for what, c := range map[string]struct {
		query store.EventQuery
		want  []int64
	}{
		"public":            {store.EventQuery{}, []int64{1, 2, 3, 4, 5, 6, 8, 9}},
		"all":               {store.EventQuery{All: true}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"thread":            {store.EventQuery{Thread: thread}, []int64{2, 5}},
		"one type":          {store.EventQuery{Types: []string{"user.message"}}, []int64{3, 5}},
		"three types":       {store.EventQuery{Types: []string{"span", "nothing", "user.message"}}, []int64{3, 5, 6}},
		"no type":           {store.EventQuery{Types: []string{}}, []int64{}},
		"thread and type":   {store.EventQuery{Thread: thread, Types: []string{"user.message"}}, []int64{5}},
		"from":              {store.EventQuery{From: at(8)}, []int64{8, 9}},
		"since":             {store.EventQuery{Since: at(8)}, []int64{9}},
		"to":                {store.EventQuery{To: at(2)}, []int64{1, 2}},
		"until":             {store.EventQuery{Until: at(2)}, []int64{1}},
		"between":           {store.EventQuery{From: at(3), Until: at(5)}, []int64{3, 4}},
		"from finer time":   {store.EventQuery{From: at(8).Add(time.Nanosecond)}, []int64{9}},
		"since finer time":  {store.EventQuery{Since: at(8).Add(time.Nanosecond)}, []int64{9}},
		"to finer time":     {store.EventQuery{To: at(2).Add(time.Nanosecond)}, []int64{1, 2}},
		"until finer time":  {store.EventQuery{Until: at(2).Add(time.Nanosecond)}, []int64{1, 2}},
		"in another zone":   {store.EventQuery{From: at(8).In(time.FixedZone("east", 3600))}, []int64{8, 9}},
		"nothing so late":   {store.EventQuery{From: at(10)}, []int64{}},
		"after and a bound": {store.EventQuery{After: 3, To: at(5)}, []int64{4, 5}},
	} {
		c.query.Limit = 4
		if got := positions(pages(t, w, name, c.query)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
		c.query.Descending, c.query.After = true, 0
		down := positions(pages(t, w, name, c.query))
		slices.Reverse(down)
		if what != "after and a bound" && !slices.Equal(down, c.want) {
			t.Errorf("%s, descending: got %v, want %v", what, down, c.want)
		}
	}
}

// Entries with one time neither get lost nor come twice, whatever the bound between two queries.
func testEqualTimes(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	log := entries(0, 30)
	for i := range log {
		log[i].At = at(int64(i / 10))
	}
	name := create(t, w, log...)
	for bound := range int64(5) {
		bound := at(bound - 1)
		for _, split := range [][2]store.EventQuery{
			{{To: bound, Limit: 7}, {Since: bound, Limit: 7}},
			{{Until: bound, Limit: 7}, {From: bound, Limit: 7}},
		} {
			joined := append(pages(t, w, name, split[0]), pages(t, w, name, split[1])...)
			if diff := cmp.Diff(log, joined); diff != "" {
				t.Errorf("split at %s (-want +got):\n%s", bound, diff)
			}
		}
	}
}

// Of an input that waited clients see the latest form only, at its latest place.
func testWaitingInputs(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	queued := func(seq int64) session.Event {
		e := entry(seq)
		e.Queued = true
		return e
	}
	delivered := func(seq int64, of session.Event) session.Event {
		e := entry(seq)
		e.ID = of.ID
		return e
	}
	a, b, c := queued(2), queued(3), queued(5)
	log := []session.Event{entry(1), a, b, entry(4), c}
	name := create(t, w, log[:3]...)
	must(t, appendTo(w, name, 3, nil, log[3:]...))
	twin := create(t, w, log...)
	expect := func(what, name string, want ...int64) {
		t.Helper()
		if got := positions(pages(t, w, name, store.EventQuery{Limit: 2})); !slices.Equal(got, want) {
			t.Errorf("%s: clients see %v, want %v", what, got, want)
		}
		got := positions(pages(t, w, name, store.EventQuery{Limit: 2, Descending: true}))
		slices.Reverse(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: clients see %v descending, want %v", what, got, want)
		}
	}
	expect("all wait", name, 1, 2, 3, 4, 5)
	must(t, appendTo(w, name, 5, nil, delivered(6, b)))
	expect("the second is delivered", name, 1, 2, 4, 5, 6)
	must(t, appendTo(w, name, 6, nil, entry(7), delivered(8, a), delivered(9, c)))
	expect("all are delivered", name, 1, 4, 6, 7, 8, 9)
	expect("a session with the same ids", twin, 1, 2, 3, 4, 5)

	all := wholeLog(t, w, name, 4)
	if len(all) != 9 || !all[1].Queued || all[7].Queued || all[1].ID != all[7].ID {
		t.Errorf("the whole log has %d entries of 9, or lost what waited: %+v", len(all), all)
	}
	for _, e := range []session.Event{a, b, c} {
		got := read(t, w, func(r store.Reader) (session.Event, error) { return r.Event(name, e.ID) })
		if got.Queued || got.Seq <= 5 {
			t.Errorf("by its id, an input is found as %+v, which is not its latest form", got)
		}
	}

	// Queued and delivered in one step.
	d := queued(10)
	must(t, appendTo(w, name, 9, nil, d, delivered(11, d)))
	expect("queued and delivered at once", name, 1, 4, 6, 7, 8, 9, 11)
}

func testEventByID(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	log := entries(0, 300)
	log[7].Body, log[7].Private = nil, []byte("1")
	name, other := create(t, w, log...), create(t, w, entry(1))
	for _, e := range log {
		got := read(t, w, func(r store.Reader) (session.Event, error) { return r.Event(name, e.ID) })
		if diff := cmp.Diff(e, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	for what, c := range map[string][2]string{
		"unknown id":      {name, id.New(id.Event)},
		"other session":   {other, log[0].ID},
		"unknown session": {id.New(id.Session), log[0].ID},
		"part of an id":   {name, log[0].ID[:20]},
		"empty id":        {name, ""},
	} {
		_, err := view(w, func(r store.Reader) (session.Event, error) { return r.Event(c[0], c[1]) })
		wants(t, what, err, store.ErrNotFound)
	}
}

func testPageBytes(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	log := entries(0, 6)
	for i := range log {
		log[i].Body, log[i].Private = make([]byte, 600), make([]byte, 400)
	}
	name := create(t, w, log...)
	for _, c := range []struct {
		bytes int64
		want  int
	}{{0, 6}, {1, 1}, {999, 1}, {1000, 1}, {1001, 2}, {2500, 3}, {5999, 6}, {1 << 40, 6}} {
		page := read(t, w, func(r store.Reader) ([]session.Event, error) {
			return r.Events(name, store.EventQuery{Limit: 10, MaxBytes: c.bytes})
		})
		if len(page) != c.want {
			t.Errorf("page of at most %d bytes has %d entries of 1000 bytes, want %d", c.bytes, len(page), c.want)
		}
		if got := pages(t, w, name, store.EventQuery{Limit: 4, MaxBytes: c.bytes, Descending: true}); len(got) != 6 {
			t.Errorf("pages of at most %d bytes have %d entries of 6", c.bytes, len(got))
		}
	}
}

// A page costs what it holds, not what the log holds.
func testBigLog(t *testing.T, fresh Fresh) {
	const total, payload, pageBytes = 20_000, 1 << 10, 256 << 10
	w := fresh.workspace(t)
	name := create(t, w)
	want := make([]string, 0, total)
	for head := int64(0); head < total; head += 1000 {
		step := entries(head, 1000)
		for i := range step {
			step[i].Body = fmt.Appendf(make([]byte, 0, payload), "%0*d", payload, step[i].Seq)
			want = append(want, step[i].ID)
		}
		must(t, appendTo(w, name, head, nil, step...))
	}
	query := store.EventQuery{Limit: total, MaxBytes: pageBytes}
	var got []string
	var before, after runtime.MemStats
	for {
		runtime.ReadMemStats(&before)
		page := read(t, w, func(r store.Reader) ([]session.Event, error) { return r.Events(name, query) })
		runtime.ReadMemStats(&after)
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 8*pageBytes {
			t.Fatalf("a page of %d bytes allocated %d bytes", pageBytes, spent)
		}
		if len(page) == 0 {
			break
		}
		if len(page) > pageBytes/payload {
			t.Fatalf("page has %d KiB, the bound is %d", len(page), pageBytes/payload)
		}
		for _, e := range page {
			got = append(got, e.ID)
		}
		query.After = page[len(page)-1].Seq
	}
	if !slices.Equal(got, want) {
		t.Errorf("the pages hold %d entries that differ from the %d of the log", len(got), len(want))
	}
	for _, at := range []int{0, total / 2, total - 1} {
		e := read(t, w, func(r store.Reader) (session.Event, error) { return r.Event(name, want[at]) })
		if e.Seq != int64(at)+1 {
			t.Errorf("entry %d is found by its id at position %d", at+1, e.Seq)
		}
	}
}
