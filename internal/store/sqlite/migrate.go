package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed schema/*.sql
var schema embed.FS

// migrations are the steps that lead to the present schema, in order. A step that was released is never edited: the
// checksum of what was applied is kept and compared.
var migrations = mustLoad(schema)

// migration is one step of the schema.
type migration struct {
	version int
	name    string
	text    string
}

func (m migration) checksum() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(m.text))) }

// NewerSchemaError says that a later release has changed the database in a way that this one does not know.
type NewerSchemaError struct{ Database, Program int }

func (e *NewerSchemaError) Error() string {
	return fmt.Sprintf("the database has schema version %d and this program knows versions up to %d: "+
		"run the newer program, or restore the backup made before the upgrade", e.Database, e.Program)
}

// mustLoad reads embedded files named 0001_what_it_does.sql. They are part of the program, so what is wrong with them
// is found by the first test.
func mustLoad(files fs.FS) []migration {
	names, err := fs.Glob(files, "schema/*.sql")
	if err != nil {
		panic(err)
	}
	var steps []migration
	for i, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err)
		}
		base := strings.TrimPrefix(name, "schema/")
		number, _, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			panic(fmt.Sprintf("sqlite: %s should be step %d", name, i+1))
		}
		steps = append(steps, migration{version, base, string(text)})
	}
	return steps
}

// migrate applies the steps that are missing, each in a transaction of its own, so that a crash leaves a version that
// the next start goes on from.
func migrate(c *conn, steps []migration) error {
	if _, err := c.exec(sqlMakeMigrations); err != nil {
		return fault("prepare the schema", err)
	}
	applied := map[int]string{}
	latest := 0
	err := c.each(context.Background(), sqlMigrations, nil, func(rows *sql.Rows) (bool, error) {
		var version int
		var checksum string
		err := rows.Scan(&version, &checksum)
		applied[version], latest = checksum, max(latest, version)
		return true, err
	})
	if err != nil {
		return fault("read the schema's version", err)
	}
	if latest > len(steps) {
		return &NewerSchemaError{Database: latest, Program: len(steps)}
	}
	for _, step := range steps {
		switch checksum, ok := applied[step.version]; {
		case !ok:
			if err := apply(c, step); err != nil {
				return fmt.Errorf("store: schema step %s: %w", step.name, err)
			}
		case checksum != step.checksum():
			return fmt.Errorf("store: schema step %s differs from the one that made this database: "+
				"it was made by another build; run that one, or restore a backup", step.name)
		}
	}
	return nil
}

func apply(c *conn, step migration) error {
	if _, err := c.exec(sqlBegin); err != nil {
		return err
	}
	err := func() error {
		if _, err := c.raw.ExecContext(context.Background(), step.text); err != nil {
			return fault("change the schema", err)
		}
		_, err := c.exec(sqlAddMigration, step.version, step.name, step.checksum())
		return err
	}()
	if err != nil {
		_, undone := c.exec(sqlRollback)
		return errors.Join(err, undone)
	}
	_, err = c.exec(sqlCommit)
	return err
}
