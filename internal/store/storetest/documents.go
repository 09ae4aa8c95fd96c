package storetest

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/store"
)

func testDocuments(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	d := store.Document{ID: id.New(id.Agent), Body: []byte("{\"a\":\"\x00\"}"), Created: at(1)}
	update(t, w, func(w store.Writer) error { return w.Put(store.Agents, d) })
	get := func(kind store.Kind) (store.Document, error) {
		return view(w, func(r store.Reader) (store.Document, error) { return r.Document(kind, d.ID) })
	}
	got, err := get(store.Agents)
	must(t, err)
	if diff := cmp.Diff(d, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err = get(store.Files)
	wants(t, "the id under another kind", err, store.ErrNotFound)

	d.Body, d.Created, d.Archived, d.Scope = bytes.Repeat([]byte("\x00a"), 1<<20), at(2), at(3), "scope"
	update(t, w, func(w store.Writer) error { return w.Put(store.Agents, d) })
	got, err = get(store.Agents)
	must(t, err)
	if !bytes.Equal(got.Body, d.Body) {
		t.Errorf("a body of %d bytes came back with %d or changed", len(d.Body), len(got.Body))
	}
	got.Body = d.Body
	if !reflect.DeepEqual(d, got) {
		t.Errorf("replaced: got %s %s %q, want %s %s %q", got.Created, got.Archived, got.Scope, d.Created, d.Archived, d.Scope)
	}
	d.Archived, d.Scope = time.Time{}, ""
	update(t, w, func(w store.Writer) error { return w.Put(store.Agents, d) })
	got, err = get(store.Agents)
	must(t, err)
	if !got.Archived.IsZero() || got.Scope != "" {
		t.Errorf("replaced by one that is not archived: %s, scope %q", got.Archived, got.Scope)
	}

	remove := func() error {
		return w.Update(context.Background(), func(w store.Writer) error { return w.Delete(store.Agents, d.ID) })
	}
	must(t, remove())
	_, err = get(store.Agents)
	wants(t, "deleted", err, store.ErrNotFound)
	wants(t, "deleting it again", remove(), store.ErrNotFound)
}

func documentPages(t checker, w store.Workspace, kind store.Kind, query store.DocumentQuery) []string {
	t.Helper()
	ids := []string{}
	for {
		page := read(t, w, func(r store.Reader) ([]store.Document, error) { return r.Documents(kind, query) })
		if len(page) > query.Limit {
			t.Fatalf("page of %d documents at limit %d", len(page), query.Limit)
		}
		if len(page) == 0 {
			return ids
		}
		for _, d := range page {
			ids = append(ids, d.ID)
		}
		query.After = ids[len(ids)-1]
	}
}

func testDocumentPages(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	docs := make([]store.Document, 9)
	ids := make([]string, len(docs))
	for i := range docs {
		ids[i] = id.New(id.File)
		docs[i] = store.Document{ID: ids[i], Body: fmt.Appendf(nil, "%d", i), Created: at(int64(i / 3))}
	}
	docs[2].Scope, docs[3].Scope, docs[4].Scope = "sesn_a", "sesn_a", "sesn_b"
	docs[8].Archived = at(9)
	update(t, w, func(w store.Writer) error {
		for _, d := range docs {
			if err := w.Put(store.Files, d); err != nil {
				return err
			}
		}
		return w.Put(store.Agents, store.Document{ID: id.New(id.Agent), Body: []byte("1"), Created: at(0)})
	})
	for what, c := range map[string]struct {
		query store.DocumentQuery
		want  []string
	}{
		"default":        {store.DocumentQuery{}, ids[:8]},
		"archived too":   {store.DocumentQuery{IncludeArchived: true}, ids},
		"scope":          {store.DocumentQuery{Scope: "sesn_a"}, ids[2:4]},
		"unknown scope":  {store.DocumentQuery{Scope: "sesn_c"}, nil},
		"from":           {store.DocumentQuery{CreatedFrom: at(1)}, ids[3:8]},
		"to":             {store.DocumentQuery{CreatedTo: at(1)}, ids[:6]},
		"between":        {store.DocumentQuery{CreatedFrom: at(1), CreatedTo: at(1)}, ids[3:6]},
		"ids":            {store.DocumentQuery{IDs: []string{ids[5], ids[1], "unknown", ids[8], ids[1]}}, []string{ids[1], ids[5]}},
		"no ids":         {store.DocumentQuery{IDs: []string{}}, nil},
		"scope and from": {store.DocumentQuery{Scope: "sesn_a", CreatedFrom: at(1)}, ids[3:4]},
	} {
		c.query.Limit, c.query.Ascending = 2, true
		if got := documentPages(t, w, store.Files, c.query); !slices.Equal(got, c.want) {
			t.Errorf("%s:\ngot  %v\nwant %v", what, got, c.want)
		}
		c.query.Ascending = false
		got := documentPages(t, w, store.Files, c.query)
		slices.Reverse(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s, newest first:\ngot (reversed) %v\nwant %v", what, got, c.want)
		}
	}
	if _, err := view(w, func(r store.Reader) ([]store.Document, error) {
		return r.Documents(store.Files, store.DocumentQuery{})
	}); err == nil {
		t.Error("a page without a limit was given")
	}
}

func testVersions(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	name, other := id.New(id.Agent), id.New(id.Agent)
	version := func(n int64) store.Version {
		return store.Version{ID: name, Version: n, Body: fmt.Appendf(nil, "{\"v\":%d}", n), Created: at(n)}
	}
	update(t, w, func(w store.Writer) error {
		for n := int64(1); n <= 12; n++ {
			if err := w.PutVersion(store.Agents, version(n)); err != nil {
				return err
			}
		}
		if err := w.PutVersion(store.Agents, store.Version{ID: other, Version: 1, Body: []byte("1"), Created: at(0)}); err != nil {
			return err
		}
		return w.Put(store.Agents, store.Document{ID: name, Body: []byte("1"), Created: at(0)})
	})
	got := read(t, w, func(r store.Reader) (store.Version, error) { return r.Version(store.Agents, name, 11) })
	if diff := cmp.Diff(version(11), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for before, want := range map[int64][]int64{0: {12, 11, 10}, 11: {10, 9, 8}, 3: {2, 1}, 1: nil, 100: {12, 11, 10}} {
		page := read(t, w, func(r store.Reader) ([]store.Version, error) { return r.Versions(store.Agents, name, before, 3) })
		var numbers []int64
		for _, v := range page {
			numbers = append(numbers, v.Version)
		}
		if !slices.Equal(numbers, want) {
			t.Errorf("versions before %d: got %v, want %v", before, numbers, want)
		}
	}
	err := w.Update(context.Background(), func(w store.Writer) error { return w.PutVersion(store.Agents, version(11)) })
	wants(t, "a version that exists", err, store.ErrConflict)
	for what, read := range map[string]func(store.Reader) (store.Version, error){
		"unknown version":  func(r store.Reader) (store.Version, error) { return r.Version(store.Agents, name, 13) },
		"unknown document": func(r store.Reader) (store.Version, error) { return r.Version(store.Agents, "agent_x", 1) },
		"another kind":     func(r store.Reader) (store.Version, error) { return r.Version(store.Environments, name, 1) },
	} {
		_, err := view(w, read)
		wants(t, what, err, store.ErrNotFound)
	}

	update(t, w, func(w store.Writer) error { return w.Delete(store.Agents, name) })
	if left := read(t, w, func(r store.Reader) ([]store.Version, error) { return r.Versions(store.Agents, name, 0, 20) }); len(left) != 0 {
		t.Errorf("%d versions of a deleted document are left", len(left))
	}
	read(t, w, func(r store.Reader) (store.Version, error) { return r.Version(store.Agents, other, 1) })
}

func testAnswers(t *testing.T, fresh Fresh) {
	s := fresh.open(t)
	w := s.In(id.New(id.Workspace))
	recall := func(key, fingerprint string) (store.Remembered, error) {
		return view(w, func(r store.Reader) (store.Remembered, error) { return r.Recall(key, fingerprint) })
	}
	remember := func(key, fingerprint string, answer store.Remembered) error {
		return w.Update(context.Background(), func(w store.Writer) error { return w.Remember(key, fingerprint, answer) })
	}
	_, err := recall("key", "print")
	wants(t, "unknown key", err, store.ErrNotFound)

	answer := store.Remembered{Status: 201, Body: []byte("{\"a\":\"\x00\xff\"}"), At: at(10)}
	empty := store.Remembered{Status: 204, At: at(20)}
	must(t, remember("key", "print", answer))
	must(t, remember("key\x00", "other", empty))
	for key, c := range map[string]struct {
		fingerprint string
		want        store.Remembered
	}{"key": {"print", answer}, "key\x00": {"other", empty}} {
		got, err := recall(key, c.fingerprint)
		must(t, err)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", key, diff)
		}
	}
	_, err = recall("key", "other")
	wants(t, "another request", err, store.ErrKeyReused)
	wants(t, "remembering another request", remember("key", "other", empty), store.ErrKeyReused)
	wants(t, "remembering it again", remember("key", "print", empty), store.ErrConflict)
	got, err := recall("key", "print")
	must(t, err)
	if diff := cmp.Diff(answer, got); diff != "" {
		t.Errorf("after refusals (-want +got):\n%s", diff)
	}

	must(t, s.ForgetAnswers(t.Context(), at(10)))
	_, err = recall("key", "print")
	wants(t, "an answer as old as the bound", err, nil)
	must(t, s.ForgetAnswers(t.Context(), at(11)))
	_, err = recall("key", "print")
	wants(t, "an older answer", err, store.ErrNotFound)
	_, err = recall("key\x00", "other")
	wants(t, "a later answer", err, nil)
	must(t, remember("key", "other", empty))
}

func testContentUsed(t *testing.T, fresh Fresh) {
	s := fresh.open(t)
	w := s.In(id.New(id.Workspace))
	used := func(content string, want bool) {
		t.Helper()
		got, err := s.ContentUsed(t.Context(), content)
		must(t, err)
		if got != want {
			t.Errorf("content %q is used: %v, want %v", content, got, want)
		}
	}
	d := store.Document{ID: id.New(id.File), Body: []byte("b"), Created: epoch, Content: "hash"}
	update(t, w, func(w store.Writer) error { return w.Put(store.Files, d) })
	used("hash", true)
	used("other", false)
	used("", false)
	if got := read(t, w, func(r store.Reader) (store.Document, error) { return r.Document(store.Files, d.ID) }); got.Content != "hash" {
		t.Errorf("the document has content %q", got.Content)
	}
	update(t, w, func(w store.Writer) error { return w.Delete(store.Files, d.ID) })
	used("hash", false)
}
