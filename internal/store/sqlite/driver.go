package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"modernc.org/sqlite"
)

// This file is all that knows which driver is used.

// pragmas are set on every connection, in this order.
var pragmas = []string{
	// First, because the others may already meet a lock. Nobody but an operator's tool can hold one: the data directory
	// belongs to this process.
	"busy_timeout(5000)",
	// Readers see a snapshot and never wait for the writer.
	"journal_mode(wal)",
	// An acknowledged write survives a power failure: each commit syncs the write-ahead log.
	"synchronous(full)",
	// Rows of a session cannot outlive it.
	"foreign_keys(1)",
	// What is deleted is overwritten in the file, not merely forgotten.
	"secure_delete(1)",
	// 16 MB of log between checkpoints: pages that many steps touch are written back once.
	"wal_autocheckpoint(16000)",
	// The log file is cut back to this size after a checkpoint; a single large transaction may make it longer.
	"journal_size_limit(33554432)",
	// Spilled sorts and savepoint journals stay off the disk; all sorts here are bounded by a page's limit.
	"temp_store(memory)",
	// 8 MB for each connection.
	"cache_size(-8192)",
	// Views and triggers of a doctored file cannot call functions with side effects.
	"trusted_schema(0)",
}

// pageSize is that of new databases, in bytes. A step changes a few small rows in several places, and each page that it
// touches goes to the log whole: with SQLite's usual 4 kB a turn writes twice as much, and is no faster. (Measured with the
// benchmark of a turn.)
const pageSize = 1024

// create gives an empty database file its page size, which cannot be changed once there is a write-ahead log. The driver
// turns the log on before any other pragma, so this takes a connection of its own. The number marks the file as ours.
func create(path string) (err error) {
	if info, err := os.Stat(path); err != nil || info.Size() > 0 {
		return err
	}
	db, err := sql.Open("sqlite", dataSource(path, url.Values{"_pragma": {fmt.Sprintf("page_size(%d)", pageSize)}}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(context.Background(), "PRAGMA application_id = 0x50657264")
	return err
}

func dataSource(path string, query url.Values) string {
	// A path is not a URL: what would end it or escape in it has to be escaped.
	name := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	return "file:" + name + "?" + query.Encode()
}

// connect opens the database file. Connections of a read-only handle refuse to write.
func connect(path string, readOnly bool) (*sql.DB, error) {
	// Commits wait for fdatasync instead of fsync where there is one: the same durability of data and size, without
	// the journal entry for the file's times. The setting is the process's; where there is none, fsync is used.
	if _, err := sqlite.Fdatasync(true); err != nil && !errors.Is(err, sqlite.ErrFdatasyncUnavailable) {
		return nil, err
	}
	query := url.Values{"_pragma": pragmas, "_dqs": {"0"}}
	if readOnly {
		query["_pragma"] = append(query["_pragma"][:len(pragmas):len(pragmas)], "query_only(1)")
	}
	connector, err := sqlite.NewConnector(dataSource(path, query))
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// The primary result codes of SQLite that mean something to an operator.
const (
	codeBusy     = 5
	codeReadOnly = 8
	codeIO       = 10
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeTooBig   = 18
	codeNotADB   = 26
)

// cause returns what err means to an operator, or nil if the driver did not say.
func cause(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return nil
	}
	switch e.Code() & 0xff {
	case codeBusy:
		return ErrBusy
	case codeReadOnly, codeCantOpen:
		return ErrReadOnly
	case codeIO:
		return ErrIO
	case codeCorrupt, codeNotADB:
		return ErrCorrupt
	case codeFull:
		return ErrDiskFull
	case codeTooBig:
		return ErrTooBig
	}
	return nil
}
