package sqlite

import (
	"os"
	"time"
)

// SQLite checkpoints by itself after commits, but starts the write-ahead log over only when no view is reading from it
// at that moment. Under views that always overlap, that moment never comes, and the log grows. The committer then makes
// the moment: it lets the views end that are running, and holds back others until the log is empty.
const (
	logAlarm = 40 << 20 // more than journal_size_limit, so that it is only reached if the log could not start over
	logStep  = 8 << 20  // growth after which a failed attempt is repeated

	// viewsEndWithin bounds the wait. A view that itself waits for an update would be waited for in vain.
	viewsEndWithin = time.Second

	sqlCheckpoint = `PRAGMA wal_checkpoint(TRUNCATE)`
	// Only an operator's tool can still be reading. It is not worth the five seconds of other locks.
	sqlWaitBriefly = `PRAGMA busy_timeout(200)`
	sqlWaitLong    = `PRAGMA busy_timeout(5000)`
)

// logWatch follows the size of the write-ahead log.
type logWatch struct {
	path  string
	alarm int64
	// pause holds views back, and fails if those that run do not end in time.
	pause func(wait time.Duration) (resume func(), ok bool)
}

// tend starts the log over if it has become too long. What goes wrong here concerns no caller: nothing is lost while
// the log is there, and a disk that cannot take a checkpoint will say so at a commit.
func (w *logWatch) tend(c *conn) {
	info, err := os.Stat(w.path)
	if err != nil || info.Size() < w.alarm {
		return
	}
	w.alarm = info.Size() + logStep
	resume, ok := w.pause(viewsEndWithin)
	if !ok {
		return
	}
	defer resume()
	if _, err := c.exec(sqlWaitBriefly); err != nil {
		return
	}
	var busy, frames, copied int
	if err := c.row(sqlCheckpoint, nil, &busy, &frames, &copied); err == nil && busy == 0 {
		w.alarm = logAlarm
	}
	_, _ = c.exec(sqlWaitLong)
}

// pauseViews takes all tokens.
func (s *Store) pauseViews(wait time.Duration) (resume func(), ok bool) {
	var taken []*conn
	resume = func() {
		for _, c := range taken {
			s.readers <- c
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for len(taken) < s.size {
		select {
		case c := <-s.readers:
			taken = append(taken, c)
		case <-timer.C:
			resume()
			return nil, false
		}
	}
	return resume, true
}
