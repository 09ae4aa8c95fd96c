package sqlite_test

import (
	"testing"

	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/sqlite"
	"github.com/perdure/perdure/internal/store/storetest"
)

func open(t testing.TB, dir string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) func(*testing.T) store.Store {
		dir := t.TempDir()
		return func(t *testing.T) store.Store { return open(t, dir) }
	})
}
