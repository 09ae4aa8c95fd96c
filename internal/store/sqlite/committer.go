package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// The bounds of one commit. Whoever comes later waits for the next one, which is never more than this away.
const (
	maxBatch      = 128
	maxBatchBytes = 8 << 20
	maxBatchTime  = 10 * time.Millisecond
)

// committer owns the only connection that writes. Requests arrive on an unbuffered channel, so a request is either
// still its caller's or in the hands of the committer, and then its outcome will be told.
type committer struct {
	conn     *conn
	log      logWatch
	requests chan *request
	stop     chan struct{}
	stopped  chan struct{}
}

// request is one caller's write.
type request struct {
	run  func(*conn, *size) error
	err  error
	done chan error // has room for the one answer
}

// size counts the bytes that a batch has been given to write.
type size int64

func newCommitter(c *conn, log logWatch) *committer {
	w := &committer{conn: c, log: log, requests: make(chan *request), stop: make(chan struct{}), stopped: make(chan struct{})}
	go w.loop()
	return w
}

// write runs a function inside a transaction and returns when that is durable. If ctx ends before the committer has
// taken the request, nothing happens; after that the outcome is waited for, because it is already being decided.
func (w *committer) write(ctx context.Context, run func(*conn, *size) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := &request{run: run, done: make(chan error, 1)}
	select {
	case w.requests <- r:
		return <-r.done
	case <-w.stop:
		return store.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *committer) loop() {
	ended := false
	defer func() {
		if ended {
			close(w.stopped)
			return
		}
		// A write function ended this goroutine. Its batch was answered; others must not wait for ever.
		go w.loop()
	}()
	for {
		select {
		case <-w.stop:
			ended = true
			return
		case r := <-w.requests:
			w.commit(r)
			w.log.tend(w.conn)
		}
	}
}

// commit runs the first request and those that are ready by then in one transaction, and answers them all.
func (w *committer) commit(first *request) {
	var batch []*request
	failed := errExited // unless the end of this function is reached
	defer func() {
		if failed != nil {
			// The error, if there is one, says that there is no transaction to roll back: the database did it.
			_, _ = w.conn.exec(sqlRollback)
		}
		for _, r := range batch {
			if r.err == nil {
				r.err = failed
			}
			r.done <- r.err
		}
	}()

	if _, err := w.conn.exec(sqlBegin); err != nil {
		batch = append(batch, first)
		failed = fault("begin a transaction", err)
		return
	}
	var written size
	began, good := time.Now(), 0
	for r := first; r != nil; r = w.next(len(batch), written, began) {
		batch = append(batch, r)
		var lost error
		if r.err, lost = w.member(r, &written); lost != nil {
			failed = lost
			return
		}
		if r.err == nil {
			good++
		}
	}
	if good == 0 {
		_, err := w.conn.exec(sqlRollback)
		failed = fault("roll back a transaction", err)
		return
	}
	_, err := w.conn.exec(sqlCommit)
	failed = commitFault(err)
}

// next returns a request that is ready, if the batch may still grow.
func (w *committer) next(members int, written size, began time.Time) *request {
	if members >= maxBatch || written >= maxBatchBytes || time.Since(began) >= maxBatchTime {
		return nil
	}
	select {
	case r := <-w.requests:
		return r
	default:
	}
	// Callers that the last commit answered may be about to come back and have not had a processor yet.
	runtime.Gosched()
	select {
	case r := <-w.requests:
		return r
	default:
		return nil
	}
}

// member runs one request inside a savepoint. lost says that the whole transaction is gone.
func (w *committer) member(r *request, written *size) (err, lost error) {
	if _, err := w.conn.exec(sqlSavepoint); err != nil {
		return nil, fault("set a savepoint", err)
	}
	if err := guard(r, w.conn, written); err != nil {
		// On some faults (a full disk, for one) the database has rolled everything back, and the savepoint with it.
		if _, gone := w.conn.exec(sqlRollbackTo); gone != nil {
			return err, w.conn.lost(gone)
		}
		if _, gone := w.conn.exec(sqlRelease); gone != nil {
			return err, fault("release a savepoint", gone)
		}
		return err, nil
	}
	if _, err := w.conn.exec(sqlRelease); err != nil {
		return nil, fault("release a savepoint", err)
	}
	return nil, nil
}

// guard keeps a panic of one caller's function from the others.
func guard(r *request, c *conn, written *size) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	c.failed = nil
	if err := r.run(c, written); err != nil {
		return err
	}
	// A function that overlooks a fault has not written what it believes to have written.
	return c.failed
}

func (w *committer) close() {
	close(w.stop)
	<-w.stopped
}

// commitFault tells a commit that did not happen from one that may have. When the log could not be synced, its frames
// may be on the disk all the same, and be found there after a crash.
func commitFault(err error) error {
	if err == nil {
		return nil
	}
	f := fault("commit", err)
	if errors.Is(cause(err), ErrIO) {
		return fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, f)
	}
	return f
}
