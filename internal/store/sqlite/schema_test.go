package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

// Each statement that a request can cause finds its rows by an index.
func TestNoStatementScansATable(t *testing.T) {
	s := openStore(t, t.TempDir())
	events := newFilter(sqlEventColumns, "w", "s")
	events.and("e.seq > ?", 1)
	events.and(sqlPublicEvent)
	events.in("e.type", []string{"a", "b", "c"})
	events.page("e.seq", true, 10)
	down := newFilter(sqlEventColumns, "w", "s")
	down.page("e.seq", false, 10)
	sessions := newFilter(sqlSessions, "w")
	sessions.and("s.id < ?", "x")
	sessions.page("s.id", false, 10)
	documents := newFilter(sqlDocuments, "w", "k")
	documents.and("id > ?", "x")
	documents.page("id", true, 10)
	scoped := newFilter(sqlDocuments, "w", "k")
	scoped.and("scope = ? AND scope <> ''", "x")
	scoped.page("id", true, 10)
	versions := newFilter(sqlVersions, "w", "k", "i")
	versions.page("version", false, 10)

	for text, wants := range map[string]string{
		events.text.String():    "events_by_position events_that_waited",
		down.text.String():      "events_by_position",
		sessions.text.String():  "sessions_by_workspace",
		documents.text.String(): "sqlite_autoindex_documents_1",
		scoped.text.String():    "documents_by_scope",
		versions.text.String():  "sqlite_autoindex_versions_1",
		sqlEvent:                "events_by_position",
		sqlAddEvent:             "events_that_waited",
		sqlDue:                  "sessions_by_wake",
		sqlNextWake:             "sessions_by_wake",
		sqlSession:              "", sqlPosition: "", sqlLease: "", sqlAlive: "", sqlRenew: "", sqlMoveHead: "", sqlMoveAll: "",
		sqlDocument: "", sqlVersion: "", sqlAnswer: "", sqlKeyByHash: "", sqlRevokeKey: "",
		sqlDeleteDocument: "", sqlDeleteVersions: "", sqlDeleteSession: "", sqlHasWorkspace: "",
		sqlDeleteScope:    "documents_by_scope",
		sqlForgetAnswers:  "answers_by_time",
		sqlDeleteAnswers:  "answers_by_session",
		sqlContentUsed:    "documents_by_content",
		sqlArchiveSession: "", sqlTakeLease: "", sqlLeave: "",
	} {
		plan := explain(t, s, text)
		if strings.Contains(plan, "SCAN") && !strings.Contains(plan, "SCAN CONSTANT ROW") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s\nscans or sorts:\n%s", text, plan)
		}
		for index := range strings.FieldsSeq(wants) {
			if !strings.Contains(plan, index) {
				t.Errorf("%s\ndoes not use %s:\n%s", text, index, plan)
			}
		}
	}
}

func explain(t *testing.T, s *Store, text string) string {
	t.Helper()
	args := make([]any, strings.Count(text, "?"))
	if strings.Contains(text, "?10") {
		args = args[:10]
	}
	var plan strings.Builder
	err := s.read(t.Context(), func(c *conn) error {
		return c.each(t.Context(), "EXPLAIN QUERY PLAN "+text, args, func(rows *sql.Rows) (bool, error) {
			var id, parent, unused int
			var detail string
			err := rows.Scan(&id, &parent, &unused, &detail)
			fmt.Fprintln(&plan, detail)
			return true, err
		})
	})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return plan.String()
}

// What an acknowledgement rests on is asked of the connections themselves.
func TestPragmas(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, dir)
	if err := put(s, "a", 1); err != nil {
		t.Fatal(err)
	}
	ask := func(c *conn) error {
		for name, want := range map[string]string{"synchronous": "2", "journal_mode": "wal", "foreign_keys": "1", "secure_delete": "1", "busy_timeout": "5000", "page_size": "1024"} {
			var got string
			if err := c.row("PRAGMA "+name, nil, &got); err != nil {
				return err
			}
			if got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
		return nil
	}
	if err := s.system(t.Context(), ask); err != nil {
		t.Error(err)
	}
	if err := s.read(t.Context(), ask); err != nil {
		t.Error(err)
	}
	for _, name := range []string{fileName, fileName + "-wal", fileName + "-shm", "lock"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
}

// countRows counts the rows of each table.
func countRows(t *testing.T, s *Store) map[string]int {
	t.Helper()
	counts := map[string]int{}
	err := s.read(t.Context(), func(c *conn) error {
		var names []string
		err := c.each(t.Context(), `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`, nil, func(rows *sql.Rows) (bool, error) {
			names = append(names, "")
			return true, rows.Scan(&names[len(names)-1])
		})
		if err != nil {
			return err
		}
		for _, name := range names {
			var n int
			if err := c.row("SELECT count(*) FROM "+name, nil, &n); err != nil {
				return err
			}
			counts[name] = n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// A deleted session leaves no row in any table and, after a checkpoint, no byte in any file.
func TestDeletedSessionLeavesNothing(t *testing.T) {
	const secret = "correct horse battery staple"
	dir := t.TempDir()
	s := openStore(t, dir)
	before := countRows(t, s)
	w := s.In("w")
	at := time.Now()
	body := []byte(strings.Repeat(secret+" ", 1000))
	err := w.Update(t.Context(), func(w store.Writer) error {
		events := []session.Event{
			{Seq: 1, ID: "e1", Type: "t", At: at, Queued: true, Body: body},
			{Seq: 2, ID: "e1", Type: "t", At: at, Body: []byte(secret)},
			{Seq: 3, ID: "e3", Type: "t", At: at, Private: body},
		}
		row := store.Session{ID: "sesn", AgentID: secret, Status: "idle", Created: at, Head: 3, Wake: at, Config: body, State: body}
		if err := w.CreateSession(row, events); err != nil {
			return err
		}
		return w.Put(store.Files, store.Document{ID: "file", Scope: "sesn", Created: at, Body: body})
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := countRows(t, s); after["events"] != 3 || after["folds"] != 2 || after["documents"] != 1 {
		t.Fatalf("rows are %v", after)
	}
	if err := w.Update(t.Context(), func(w store.Writer) error { return w.DeleteSession("sesn") }); err != nil {
		t.Fatal(err)
	}
	if after := countRows(t, s); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("rows were %v and are %v", before, after)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), secret) {
			t.Errorf("%s still holds what was deleted", filepath.Base(name))
		}
	}
}

// A node that holds a lease gets it again without a commit.
func TestHeldLeaseCostsNoCommit(t *testing.T) {
	s := openStore(t, t.TempDir())
	err := s.In("w").Update(t.Context(), func(w store.Writer) error {
		return w.CreateSession(store.Session{ID: "sesn", Status: "idle", Created: time.Now()}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Join(t.Context(), "a", time.Hour); err != nil {
		t.Fatal(err)
	}
	observer := openReader(t, s)
	acquire := func() {
		t.Helper()
		if _, err := s.Acquire(t.Context(), "a", "sesn"); err != nil {
			t.Fatal(err)
		}
	}
	unheld := dataVersion(t, observer)
	acquire()
	held := dataVersion(t, observer)
	acquire()
	if again := dataVersion(t, observer); held == unheld || again != held {
		t.Errorf("the database went through versions %d, %d, %d", unheld, held, again)
	}
}

func openReader(t *testing.T, s *Store) *conn {
	t.Helper()
	c, err := newConn(context.Background(), s.reading)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.discard(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// dataVersion changes whenever another connection has committed something.
func dataVersion(t *testing.T, c *conn) (version int64) {
	t.Helper()
	if err := c.row(`PRAGMA data_version`, nil, &version); err != nil {
		t.Fatal(err)
	}
	return version
}

// Durable state grows with what is new, not with what is there (and the write-ahead log not without bound).
func TestGrowthIsLinear(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	w := s.In("w")
	err := w.Update(t.Context(), func(w store.Writer) error {
		return w.CreateSession(store.Session{ID: "sesn", Status: "idle", Created: time.Now()}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	const payload = 5 << 10
	file := filepath.Join(dir, fileName)
	sizes := map[int64]int64{}
	for turn := int64(1); turn <= 500; turn++ {
		err := w.Update(t.Context(), func(w store.Writer) error {
			return w.Append(store.Append{Session: "sesn", Head: turn - 1, Status: "running", State: make([]byte, 2000), Events: []session.Event{
				{Seq: turn, ID: fmt.Sprint(turn), Type: "agent.tool_result", At: time.Now(), Body: make([]byte, payload)},
			}})
		})
		if err != nil {
			t.Fatal(err)
		}
		if turn%100 == 0 {
			if _, err := s.committer.conn.raw.ExecContext(t.Context(), "PRAGMA wal_checkpoint(truncate)"); err != nil {
				t.Fatal(err)
			}
			sizes[turn] = fileLength(t, file)
		}
		if wal := fileLength(t, file+"-wal"); wal > 64<<20 {
			t.Fatalf("the write-ahead log has %d bytes", wal)
		}
	}
	if sizes[500] >= 6*sizes[100] {
		t.Errorf("sizes are %v: more than linear", sizes)
	}
	if stored := float64(sizes[500]-sizes[100]) / (400 * payload); stored > 1.7 {
		t.Errorf("each byte of a payload takes %.2f bytes", stored)
	}
}

func fileLength(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
