package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

// reader reads one tenant's data inside a transaction.
type reader struct {
	c *conn
	// ctx ends queries that may read many rows. It lives as long as the View that the reader was made for.
	ctx       context.Context
	workspace string
}

var errLimit = errors.New("store: a page needs a limit above 0")

func (r *reader) Document(kind store.Kind, id string) (store.Document, error) {
	var d store.Document
	var created, archived sql.NullInt64
	err := r.c.row(sqlDocument, []any{r.workspace, string(kind), id},
		&d.ID, (*[]byte)(&d.Body), &created, &archived, &d.Scope, &d.Content)
	if err != nil {
		return store.Document{}, err
	}
	d.Created, d.Archived = instant(created), instant(archived)
	return d, nil
}

func (r *reader) Documents(kind store.Kind, query store.DocumentQuery) ([]store.Document, error) {
	if query.Limit <= 0 {
		return nil, errLimit
	}
	f := newFilter(sqlDocuments, r.workspace, string(kind))
	switch {
	case query.After == "":
	case query.Ascending:
		f.and("id > ?", query.After)
	default:
		f.and("id < ?", query.After)
	}
	if !query.IncludeArchived {
		f.and("archived IS NULL")
	}
	if !query.CreatedFrom.IsZero() {
		f.and("created >= ?", ceiling(query.CreatedFrom))
	}
	if !query.CreatedTo.IsZero() {
		f.and("created <= ?", query.CreatedTo.UnixMicro())
	}
	if query.Scope != "" {
		// The second condition is what lets the partial index be used.
		f.and("scope = ? AND scope <> ''", query.Scope)
	}
	if query.IDs != nil {
		f.in("id", query.IDs)
	}
	f.page("id", query.Ascending, query.Limit)
	var page []store.Document
	err := r.c.each(r.ctx, f.text.String(), f.args, func(rows *sql.Rows) (bool, error) {
		var d store.Document
		var created, archived sql.NullInt64
		err := rows.Scan(&d.ID, (*[]byte)(&d.Body), &created, &archived, &d.Scope, &d.Content)
		d.Created, d.Archived = instant(created), instant(archived)
		page = append(page, d)
		return true, err
	})
	return page, err
}

func (r *reader) Version(kind store.Kind, id string, version int64) (store.Version, error) {
	var v store.Version
	var created sql.NullInt64
	err := r.c.row(sqlVersion, []any{r.workspace, string(kind), id, version},
		&v.ID, &v.Version, (*[]byte)(&v.Body), &created)
	if err != nil {
		return store.Version{}, err
	}
	v.Created = instant(created)
	return v, nil
}

func (r *reader) Versions(kind store.Kind, id string, before int64, limit int) ([]store.Version, error) {
	if limit <= 0 {
		return nil, errLimit
	}
	f := newFilter(sqlVersions, r.workspace, string(kind), id)
	if before != 0 {
		f.and("version < ?", before)
	}
	f.page("version", false, limit)
	var page []store.Version
	err := r.c.each(r.ctx, f.text.String(), f.args, func(rows *sql.Rows) (bool, error) {
		var v store.Version
		var created sql.NullInt64
		err := rows.Scan(&v.ID, &v.Version, (*[]byte)(&v.Body), &created)
		v.Created = instant(created)
		page = append(page, v)
		return true, err
	})
	return page, err
}

func (r *reader) Recall(key, fingerprint string) (store.Remembered, error) {
	var known string
	var answer store.Remembered
	var at sql.NullInt64
	if err := r.c.row(sqlAnswer, []any{r.workspace, key}, &known, &answer.Status, &answer.Body, &at); err != nil {
		return store.Remembered{}, err
	}
	if known != fingerprint {
		return store.Remembered{}, store.ErrKeyReused
	}
	answer.At = instant(at)
	return answer, nil
}

func (r *reader) Session(id string) (store.Session, error) {
	var row sessionRow
	if err := r.c.row(sqlSession, []any{r.workspace, id}, row.targets()...); err != nil {
		return store.Session{}, err
	}
	return row.session(), nil
}

func (r *reader) Sessions(query store.SessionQuery) ([]store.Session, error) {
	if query.Limit <= 0 {
		return nil, errLimit
	}
	f := newFilter(sqlSessions, r.workspace)
	switch {
	case query.After == "":
	case query.Ascending:
		f.and("s.id > ?", query.After)
	default:
		f.and("s.id < ?", query.After)
	}
	if !query.IncludeArchived {
		f.and("s.archived IS NULL")
	}
	if query.AgentID != "" {
		f.and("s.agent = ?", query.AgentID)
	}
	if query.AgentVersion != 0 {
		f.and("s.agent_version = ?", query.AgentVersion)
	}
	if query.Environment != "" {
		f.and("s.environment = ?", query.Environment)
	}
	if query.Deployment != "" {
		f.and("s.deployment = ?", query.Deployment)
	}
	if query.Statuses != nil {
		f.in("s.status", query.Statuses)
	}
	if !query.CreatedFrom.IsZero() {
		f.and("s.created >= ?", ceiling(query.CreatedFrom))
	}
	if !query.CreatedAfter.IsZero() {
		f.and("s.created > ?", query.CreatedAfter.UnixMicro())
	}
	if !query.CreatedTo.IsZero() {
		f.and("s.created <= ?", query.CreatedTo.UnixMicro())
	}
	if !query.CreatedBefore.IsZero() {
		f.and("s.created < ?", ceiling(query.CreatedBefore))
	}
	f.page("s.id", query.Ascending, query.Limit)
	var page []store.Session
	err := r.c.each(r.ctx, f.text.String(), f.args, func(rows *sql.Rows) (bool, error) {
		var row sessionRow
		err := rows.Scan(row.targets()...)
		page = append(page, row.session())
		return true, err
	})
	return page, err
}

// sessionRow is a session as it comes out of the database.
type sessionRow struct {
	s                       store.Session
	created, archived, wake sql.NullInt64
	configSeq, stateSeq     sql.NullInt64
}

func (row *sessionRow) targets() []any {
	s := &row.s
	return []any{
		&s.ID, &s.AgentID, &s.AgentVersion, &s.Environment, &s.Deployment, &s.Status, &row.created, &row.archived,
		&s.Head, &row.wake, &s.Config, &row.configSeq, &s.State, &row.stateSeq,
	}
}

func (row *sessionRow) session() store.Session {
	row.s.Created, row.s.Archived, row.s.Wake = instant(row.created), instant(row.archived), instant(row.wake)
	row.s.ConfigSeq, row.s.StateSeq = row.configSeq.Int64, row.stateSeq.Int64
	return row.s
}

func (r *reader) Events(id string, query store.EventQuery) ([]session.Event, error) {
	if query.Limit <= 0 {
		return nil, errLimit
	}
	f := newFilter(sqlEventColumns, r.workspace, id)
	switch {
	case query.After == 0:
	case query.Descending:
		f.and("e.seq < ?", query.After)
	default:
		f.and("e.seq > ?", query.After)
	}
	if !query.All {
		f.and(sqlPublicEvent)
	}
	if query.Thread != "" {
		f.and("e.thread = ?", query.Thread)
	}
	if query.Types != nil {
		f.in("e.type", query.Types)
	}
	if !query.From.IsZero() {
		f.and("e.at >= ?", ceiling(query.From))
	}
	if !query.Since.IsZero() {
		f.and("e.at > ?", query.Since.UnixMicro())
	}
	if !query.To.IsZero() {
		f.and("e.at <= ?", query.To.UnixMicro())
	}
	if !query.Until.IsZero() {
		f.and("e.at < ?", ceiling(query.Until))
	}
	f.page("e.seq", !query.Descending, query.Limit)
	var page []session.Event
	var bytes int64
	err := r.c.each(r.ctx, f.text.String(), f.args, func(rows *sql.Rows) (bool, error) {
		e, err := scanEvent(rows)
		page = append(page, e)
		bytes += int64(len(e.Body) + len(e.Private))
		return query.MaxBytes <= 0 || bytes < query.MaxBytes, err
	})
	return page, err
}

func (r *reader) Event(id, event string) (session.Event, error) {
	var found session.Event
	err := r.c.each(r.ctx, sqlEvent, []any{r.workspace, id, tag(event), event}, func(rows *sql.Rows) (_ bool, err error) {
		found, err = scanEvent(rows)
		return false, err
	})
	if err == nil && found.Seq == 0 {
		err = store.ErrNotFound
	}
	return found, err
}

func scanEvent(rows *sql.Rows) (session.Event, error) {
	var e session.Event
	var at sql.NullInt64
	err := rows.Scan(&e.Seq, &e.ID, &e.Thread, &e.Type, &at, &e.Queued, (*[]byte)(&e.Body), (*[]byte)(&e.Private))
	if err != nil {
		return session.Event{}, fmt.Errorf("read a log entry: %w", err)
	}
	e.At = instant(at)
	return e, nil
}
