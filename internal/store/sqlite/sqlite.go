// Package sqlite keeps a store in one SQLite file, for one process.
//
// # Authority
//
// The database file is the only truth. The process that holds the lock of the data directory is the only one that opens
// it; a second one is refused with a LockedError. Whoever was known as alive before is therefore dead when Open returns.
//
// # Protocol
//
// One goroutine, the committer, owns the one connection that writes. Updates are handed to it over a channel. It begins
// a transaction, runs each update that is ready inside a savepoint of its own, and commits them together: one sync of
// the disk for all of them (group commit). Nobody is answered before that. What follows:
//
//   - Transactions do not overlap, so positions of a log have no gaps and become visible in order (I1, I2).
//   - An update that fails or panics is rolled back to its savepoint; the others of its batch are not concerned.
//   - A commit that fails fails all updates of its batch, and none of them has an effect. If the log could not be
//     synced, the outcome is unknown and the error says so.
//   - A fault that an update overlooks still fails it: a transaction that the database has rolled back in the middle
//     must not go on outside of it.
//   - No fault ends the committer. When the cause is gone (a full disk, a read-only mount), the next update works.
//
// Views use a pool of connections that cannot write, each in a read transaction, and neither wait for the committer nor
// make it wait. A View holds a connection until it returns: it must not wait for anything, least of all another View. An
// update that calls the store again waits for itself for ever.
//
// # Waiting
//
// Goroutines of this package wait on channels and timers only, so that the store runs inside a testing/synctest bubble.
// The process's clock decides which nodes are alive, since there is one process; in a bubble that clock is virtual.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/perdure/perdure/internal/store"
)

const fileName = "perdure.db"

// defaultReaders lets that many views run at once. More of them than processors only helps when the disk is slow.
const defaultReaders = 4

// Options are what can be chosen. The zero value is a good choice.
type Options struct {
	// Readers is the number of connections for views; 0 for 4. Each takes up to 8 MB of memory for its page cache.
	Readers int
}

// Store is a store.Store in a data directory.
type Store struct {
	lock      *dirLock
	writing   *sql.DB
	reading   *sql.DB
	committer *committer
	// readers holds a token for each view that may run: an idle connection, or nil where one has to be opened.
	readers chan *conn
	size    int

	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
}

var _ store.Store = (*Store)(nil)

// Open opens the store in a data directory, which it makes if it does not exist. It brings the schema up to date, and
// forgets the nodes that were alive before.
func Open(ctx context.Context, dir string, options Options) (_ *Store, err error) {
	if options.Readers < 0 {
		return nil, fmt.Errorf("store: %d readers: choose a positive number, or 0 for the default", options.Readers)
	}
	if options.Readers == 0 {
		options.Readers = defaultReaders
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("store: data directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: make the data directory: %w", err)
	}
	s := &Store{size: options.Readers, closing: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if s.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, fileName)
	if err := makePrivate(path); err != nil {
		return nil, err
	}
	if err := create(path); err != nil {
		return nil, fault("make "+path, err)
	}
	if s.writing, err = connect(path, false); err != nil {
		return nil, fault("open "+path, err)
	}
	if s.reading, err = connect(path, true); err != nil {
		return nil, fault("open "+path, err)
	}
	writer, err := newConn(ctx, s.writing)
	if err != nil {
		return nil, fault("open "+path, err)
	}
	if err := migrate(writer, migrations); err != nil {
		return nil, errors.Join(err, writer.close())
	}
	if _, err := writer.exec(sqlForgetNodes); err != nil {
		return nil, errors.Join(fault("forget the nodes of the last process", err), writer.close())
	}
	s.readers = make(chan *conn, s.size)
	for range s.size {
		s.readers <- nil
	}
	s.committer = newCommitter(writer, logWatch{path + "-wal", logAlarm, s.pauseViews})
	return s, nil
}

// makePrivate makes an empty database file that others cannot read, whatever the mode of the directory. SQLite gives the
// files beside it the same mode. It must not be done while a connection is open: closing a file drops its locks.
func makePrivate(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("store: make the database file: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("store: make the database file: %w", err)
	}
	return nil
}

// In gives access to one tenant's data.
func (s *Store) In(workspace string) store.Workspace { return tenant{s, workspace} }

// Close waits for the updates and views that have begun, and gives the data directory free. Later calls of any method
// return store.ErrClosed.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		s.committer.close()
		for range s.size {
			if c := <-s.readers; c != nil {
				s.closeErr = errors.Join(s.closeErr, c.close())
			}
		}
		s.closeErr = errors.Join(s.closeErr, s.committer.conn.close(), s.release())
	})
	return s.closeErr
}

// release gives back what is not tied to a connection. The lock comes last: until the files are closed they are ours.
func (s *Store) release() error {
	var errs []error
	if s.reading != nil {
		errs = append(errs, s.reading.Close())
	}
	if s.writing != nil {
		errs = append(errs, s.writing.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.release())
	}
	return errors.Join(errs...)
}

// tenant is one workspace's view of the store. It is the only place where readers and writers are made.
type tenant struct {
	store     *Store
	workspace string
}

func (t tenant) View(ctx context.Context, read func(store.Reader) error) error {
	return t.store.read(ctx, func(c *conn) error {
		return read(&reader{c: c, ctx: ctx, workspace: t.workspace})
	})
}

func (t tenant) Update(ctx context.Context, write func(store.Writer) error) error {
	return t.store.committer.write(ctx, func(c *conn, written *size) error {
		return write(&writer{reader{c: c, ctx: context.Background(), workspace: t.workspace}, written})
	})
}

// read runs a function in a read transaction, which sees one state of the database from its first query on.
func (s *Store) read(ctx context.Context, run func(*conn) error) (err error) {
	c, err := s.take(ctx)
	if err != nil {
		return err
	}
	if _, err := c.exec(sqlBeginRead); err != nil {
		s.readers <- nil
		return errors.Join(fault("begin to read", err), c.discard())
	}
	// Deferred, because a panic of the function must not take the connection along.
	defer func() {
		if _, ended := c.exec(sqlRollback); ended != nil {
			err = errors.Join(err, fault("end a read", ended), c.discard())
			c = nil
		}
		s.readers <- c
	}()
	return run(c)
}

func (s *Store) take(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var c *conn
	select {
	case <-s.closing:
		return nil, store.ErrClosed
	default:
	}
	select {
	case c = <-s.readers:
	case <-s.closing:
		return nil, store.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c != nil {
		return c, nil
	}
	c, err := newConn(ctx, s.reading)
	if err != nil {
		s.readers <- nil
		return nil, fault("open a connection", err)
	}
	return c, nil
}
