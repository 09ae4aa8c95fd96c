package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func openConn(t *testing.T, dir string) *conn {
	t.Helper()
	db, err := connect(filepath.Join(dir, fileName), false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newConn(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func tables(t *testing.T, c *conn) string {
	t.Helper()
	var names string
	err := c.row(`SELECT group_concat(name, ' ') FROM (SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name)`, nil, &names)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestMigrateInSteps(t *testing.T) {
	c := openConn(t, t.TempDir())
	steps := []migration{{1, "0001_a.sql", "CREATE TABLE a (x); INSERT INTO a VALUES (1);"}}
	for range 2 {
		if err := migrate(c, steps); err != nil {
			t.Fatal(err)
		}
	}
	steps = append(steps, migration{2, "0002_b.sql", "ALTER TABLE a ADD COLUMN y; CREATE TABLE b (x);"})
	if err := migrate(c, steps); err != nil {
		t.Fatal(err)
	}
	if got := tables(t, c); got != "a b migrations" {
		t.Errorf("tables are %s", got)
	}

	// A step that fails leaves nothing of itself, and can be tried again.
	broken := append(steps, migration{3, "0003_c.sql", "CREATE TABLE c (x); DROP TABLE a; INSERT INTO nowhere VALUES (1);"})
	err := migrate(c, broken)
	if err == nil || !strings.Contains(err.Error(), "0003_c.sql") {
		t.Errorf("a broken step: %v", err)
	}
	if got := tables(t, c); got != "a b migrations" {
		t.Errorf("after a broken step tables are %s", got)
	}
	broken[2].text = "CREATE TABLE c (x);"
	if err := migrate(c, broken); err != nil {
		t.Errorf("the step, mended: %v", err)
	}

	err = migrate(c, steps)
	var newer *NewerSchemaError
	if !errors.As(err, &newer) || *newer != (NewerSchemaError{Database: 3, Program: 2}) || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("a program older than the database: %v", err)
	}
	edited := []migration{steps[0], {2, "0002_b.sql", "CREATE TABLE b (x, z);"}, broken[2]}
	if err := migrate(c, edited); err == nil || !strings.Contains(err.Error(), "0002_b.sql") {
		t.Errorf("an edited step: %v", err)
	}
}

func TestNewerDatabaseIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	err := s.system(t.Context(), func(c *conn) error {
		_, err := c.exec(sqlAddMigration, len(migrations)+1, "later.sql", "checksum")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), dir, Options{})
	var newer *NewerSchemaError
	if !errors.As(err, &newer) {
		t.Errorf("got %v", err)
	}
	if files := openFiles(t, dir); len(files) > 0 {
		t.Errorf("the refusal left open: %v", files)
	}
}

func TestStepsAreNumbered(t *testing.T) {
	for _, names := range [][]string{{"schema/0002_b.sql"}, {"schema/0001_a.sql", "schema/0003_c.sql"}, {"schema/a.sql"}} {
		files := fstest.MapFS{}
		for _, name := range names {
			files[name] = &fstest.MapFile{}
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v was accepted", names)
				}
			}()
			mustLoad(files)
		}()
	}
}

// What was released is never edited. A new step adds a line here.
func TestReleasedStepsAreUnchanged(t *testing.T) {
	want, err := os.ReadFile("testdata/checksums")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, m := range migrations {
		got.WriteString(m.checksum() + "  " + m.name + "\n")
	}
	if got.String() != string(want) {
		t.Errorf("steps differ from testdata/checksums: make another step instead of editing one. They are\n%s", got.String())
	}
}
