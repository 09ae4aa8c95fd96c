package sqlite

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// Writers that come together share a commit.
func TestWritersShareACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, t.TempDir())
		observer := openReader(t, s)
		before := dataVersion(t, observer)
		release := hold(s)
		const writers = 32
		errs := make(chan error, writers)
		for i := range writers {
			go func() { errs <- put(s, fmt.Sprint("d", i), 1) }()
		}
		synctest.Wait() // until all of them wait for the committer
		release()
		for range writers {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		if commits := dataVersion(t, observer) - before; commits < 1 || commits > 4 {
			t.Errorf("%d writers took %d commits", writers, commits)
		}
	})
}
