package sqlite_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// The store lives on virtual time: a lease changes hands after its holder's time, in no time. The bubble also proves
// that Close leaves no goroutine behind.
func TestFailoverOnVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := open(t, t.TempDir())
		began := time.Now()
		err := s.In("wrkspc").Update(ctx, func(w store.Writer) error {
			return w.CreateSession(store.Session{ID: "sesn", Status: "idle", Created: began}, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Join(ctx, "a", 5*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := s.Join(ctx, "b", time.Hour); err != nil {
			t.Fatal(err)
		}
		first, err := s.Acquire(ctx, "a", "sesn")
		if err != nil {
			t.Fatal(err)
		}
		go func() { // renews once, then dies
			time.Sleep(3 * time.Second)
			if err := s.Renew(ctx, "a", 5*time.Second); err != nil {
				t.Error(err)
			}
		}()
		var second store.Lease
		polls := time.NewTicker(500 * time.Millisecond)
		defer polls.Stop()
		for range polls.C {
			if second, err = s.Acquire(ctx, "b", "sesn"); !errors.Is(err, store.ErrHeld) {
				break
			}
		}
		if err != nil || second.Epoch != first.Epoch+1 {
			t.Errorf("b got %+v, %v after %+v", second, err, first)
		}
		if took := time.Since(began); took != 8*time.Second {
			t.Errorf("failover came after %s, want 8s: 3s until the renewal, and 5s", took)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
