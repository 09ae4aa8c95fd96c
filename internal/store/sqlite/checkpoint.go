package sqlite

import "os"

// SQLite checkpoints by itself after commits, but starts the write-ahead log over only when no view is reading from it
// at that moment. Under views that always overlap that moment never comes, and the log grows. The committer then makes
// the moment: it waits a little for the views that are running, while no commit adds to the log.
const (
	logAlarm = 40 << 20 // more than journal_size_limit, so that it is only reached if the log could not start over
	logStep  = 8 << 20  // growth after which a failed attempt is repeated

	sqlCheckpoint  = `PRAGMA wal_checkpoint(TRUNCATE)`
	sqlWaitBriefly = `PRAGMA busy_timeout(200)` // a view that itself waits for an update would be waited for in vain
	sqlWaitLong    = `PRAGMA busy_timeout(5000)`
)

// logWatch follows the size of the write-ahead log.
type logWatch struct {
	path  string
	alarm int64
}

// tend starts the log over if it has become too long. What goes wrong here concerns no caller: nothing is lost while
// the log is there, and a disk that cannot take a checkpoint will say so at a commit.
func (w *logWatch) tend(c *conn) {
	info, err := os.Stat(w.path)
	if err != nil || info.Size() < w.alarm {
		return
	}
	w.alarm = info.Size() + logStep
	if _, err := c.exec(sqlWaitBriefly); err != nil {
		return
	}
	var busy, frames, copied int
	err = c.row(sqlCheckpoint, nil, &busy, &frames, &copied)
	if err == nil && busy == 0 {
		w.alarm = logAlarm
	}
	_, _ = c.exec(sqlWaitLong)
}
