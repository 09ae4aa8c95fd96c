package sqlite

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

// writer writes one tenant's data on the committer's goroutine.
type writer struct {
	reader
	written *size
}

func (w *writer) count(payloads ...int) {
	for _, n := range payloads {
		*w.written += size(n)
	}
}

func (w *writer) Put(kind store.Kind, d store.Document) error {
	if d.ID == "" || d.Body == nil {
		return errors.New("store: a document needs an id and a body")
	}
	w.count(len(d.Body))
	_, err := w.c.exec(sqlPutDocument,
		w.workspace, string(kind), d.ID, blob(d.Body), d.Created.UnixMicro(), timestamp(d.Archived), d.Scope, d.Content)
	return err
}

// Delete removes a document and its versions.
func (w *writer) Delete(kind store.Kind, id string) error {
	changed, err := w.c.exec(sqlDeleteDocument, w.workspace, string(kind), id)
	if err != nil {
		return err
	}
	if changed == 0 {
		return store.ErrNotFound
	}
	_, err = w.c.exec(sqlDeleteVersions, w.workspace, string(kind), id)
	return err
}

func (w *writer) PutVersion(kind store.Kind, v store.Version) error {
	if v.ID == "" || v.Body == nil {
		return errors.New("store: a version needs the id of its document and a body")
	}
	w.count(len(v.Body))
	changed, err := w.c.exec(sqlAddVersion, w.workspace, string(kind), v.ID, v.Version, blob(v.Body), v.Created.UnixMicro())
	if err == nil && changed == 0 {
		err = store.ErrConflict
	}
	return err
}

// Remember refuses a key that is taken: with ErrKeyReused if it was for another request, with ErrConflict if for the
// same one.
func (w *writer) Remember(key, fingerprint string, answer store.Remembered) error {
	w.count(len(answer.Body))
	changed, err := w.c.exec(sqlAddAnswer,
		w.workspace, key, fingerprint, answer.Status, blob(answer.Body), answer.At.UnixMicro(), answer.Session)
	if err != nil || changed > 0 {
		return err
	}
	if _, err := w.Recall(key, fingerprint); err != nil {
		return err
	}
	return store.ErrConflict
}

func (w *writer) CreateSession(row store.Session, events []session.Event) error {
	if row.ID == "" {
		return errors.New("store: a session needs an id")
	}
	head := int64(len(events))
	if row.Head != head {
		return fmt.Errorf("store: session %s is created with head %d and %d log entries: they must be equal", row.ID, row.Head, head)
	}
	var no int64
	err := w.c.row(sqlAddSession, []any{row.ID, w.workspace, head, row.Status, due(row.Wake), row.Created.UnixMicro(),
		timestamp(row.Archived), row.AgentID, row.AgentVersion, row.Environment, row.Deployment}, &no)
	if errors.Is(err, store.ErrNotFound) {
		return store.ErrConflict // no row was made, because the id is taken, here or in another workspace
	}
	if err != nil {
		return err
	}
	if err := w.fold(no, foldConfig, row.ConfigSeq, row.Config); err != nil {
		return err
	}
	if err := w.fold(no, foldState, row.StateSeq, row.State); err != nil {
		return err
	}
	return w.log(no, 0, events)
}

func (w *writer) Append(step store.Append) error {
	var (
		no, head, epoch int64
		status, node    string
		wake            sql.NullInt64
	)
	err := w.c.row(sqlPosition, []any{w.workspace, step.Session}, &no, &head, &status, &wake, &node, &epoch)
	if err != nil {
		return err
	}
	// A lost lease is told before a lost race: it is the reason to stop.
	if l := step.Lease; l != nil &&
		(l.Session != step.Session || l.Workspace != w.workspace || l.Node != node || l.Epoch != epoch || epoch == 0) {
		return store.ErrFenced
	}
	if step.Head != head {
		return store.ErrConflict
	}
	if err := w.log(no, head, step.Events); err != nil {
		return err
	}
	head += int64(len(step.Events))

	// Most steps of a turn change neither status nor wake; then the index of wakes is left alone.
	if next := due(step.Wake); step.Status == status && next == value(wake) {
		_, err = w.c.exec(sqlMoveHead, head, no)
	} else {
		_, err = w.c.exec(sqlMoveAll, head, step.Status, next, no)
	}
	if err != nil {
		return err
	}
	if !step.Archived.IsZero() {
		if _, err := w.c.exec(sqlArchiveSession, timestamp(step.Archived), no); err != nil {
			return err
		}
	}
	if err := w.fold(no, foldConfig, head, step.Config); err != nil {
		return err
	}
	return w.fold(no, foldState, head, step.State)
}

func value(n sql.NullInt64) any {
	if !n.Valid {
		return nil
	}
	return n.Int64
}

// log inserts entries after head. Positions that do not follow are the caller's mistake, not a race.
func (w *writer) log(no, head int64, events []session.Event) error {
	for i := range events {
		e := &events[i]
		if want := head + int64(i) + 1; e.Seq != want {
			return fmt.Errorf("store: log entry %s has position %d: it must be %d", e.ID, e.Seq, want)
		}
		if e.ID == "" || e.At.IsZero() {
			return fmt.Errorf("store: log entry at position %d needs an id and a time", e.Seq)
		}
		w.count(len(e.Body), len(e.Private))
		_, err := w.c.exec(sqlAddEvent, no, e.Seq, tag(e.ID), e.At.UnixMicro(), e.Queued, e.ID, e.Thread, e.Type, blob(e.Body), blob(e.Private))
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) fold(no, kind, seq int64, body []byte) error {
	if body == nil {
		return nil
	}
	w.count(len(body))
	_, err := w.c.exec(sqlPutFold, no, kind, seq, body)
	return err
}

func (w *writer) DeleteSession(id string) error {
	changed, err := w.c.exec(sqlDeleteSession, w.workspace, id)
	if err != nil {
		return err
	}
	if changed == 0 {
		return store.ErrNotFound
	}
	if _, err := w.c.exec(sqlDeleteScope, w.workspace, string(store.Files), id); err != nil {
		return err
	}
	_, err = w.c.exec(sqlDeleteAnswers, w.workspace, id)
	return err
}
