package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/perdure/perdure/internal/store"
)

// maxStatements bounds the statements kept for one connection. Filters are put together from fixed parts, so there are
// many but not endlessly many texts.
const maxStatements = 256

// conn is one connection with its prepared statements. One goroutine at a time uses it.
type conn struct {
	raw        *sql.Conn
	statements map[string]*sql.Stmt
	// failed is the first fault since it was last cleared.
	failed error
}

func newConn(ctx context.Context, db *sql.DB) (*conn, error) {
	raw, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{raw: raw, statements: map[string]*sql.Stmt{}}, nil
}

func (c *conn) prepare(text string) (*sql.Stmt, error) {
	if s, ok := c.statements[text]; ok {
		return s, nil
	}
	if len(c.statements) >= maxStatements {
		if err := c.forget(); err != nil {
			return nil, err
		}
	}
	s, err := c.raw.PrepareContext(context.Background(), text)
	if err != nil {
		return nil, err
	}
	c.statements[text] = s
	return s, nil
}

// exec runs a statement to its end. It cannot be cancelled: an interrupted write would take the whole transaction, and
// with it the writes of others, along.
func (c *conn) exec(text string, args ...any) (changed int64, err error) {
	s, err := c.prepare(text)
	if err != nil {
		return 0, c.note(err)
	}
	result, err := s.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, c.note(err)
	}
	return result.RowsAffected()
}

// each calls visit for the rows of a query until it returns false. Visit scans the row that it is given.
func (c *conn) each(ctx context.Context, text string, args []any, visit func(*sql.Rows) (more bool, err error)) error {
	s, err := c.prepare(text)
	if err != nil {
		return c.note(err)
	}
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return c.note(err)
	}
	more := true
	for more && err == nil && rows.Next() {
		more, err = visit(rows)
	}
	if err == nil {
		err = rows.Err()
	}
	return c.note(errors.Join(err, rows.Close()))
}

// row scans the only row of a query into targets. It returns store.ErrNotFound if there is none.
func (c *conn) row(text string, args []any, targets ...any) error {
	s, err := c.prepare(text)
	if err != nil {
		return c.note(err)
	}
	err = s.QueryRowContext(context.Background(), args...).Scan(targets...)
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	return c.note(err)
}

func (c *conn) note(err error) error {
	if err == nil {
		return nil
	}
	err = fault("use the database", err)
	if c.failed == nil {
		c.failed = err
	}
	return err
}

// lost is the reason for a transaction's end to those who have no part in it.
func (c *conn) lost(symptom error) error {
	if c.failed == nil {
		return symptom
	}
	return c.failed
}

// close gives the connection back to its pool.
func (c *conn) close() error { return errors.Join(c.forget(), c.raw.Close()) }

// discard closes the connection for good, whatever state it is in.
func (c *conn) discard() error {
	forgotten := c.forget()
	err := c.raw.Raw(func(any) error { return driver.ErrBadConn })
	if errors.Is(err, driver.ErrBadConn) {
		err = nil
	}
	return errors.Join(forgotten, err)
}

// forget closes the statements. SQLite keeps a connection with a statement open, and its files, until the last of them
// is closed.
func (c *conn) forget() error {
	var errs []error
	for _, s := range c.statements {
		errs = append(errs, s.Close())
	}
	clear(c.statements)
	return errors.Join(errs...)
}
