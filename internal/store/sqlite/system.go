package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// system runs a write that concerns no tenant.
func (s *Store) system(ctx context.Context, run func(*conn) error) error {
	return s.committer.write(ctx, func(c *conn, _ *size) error { return run(c) })
}

// Join makes a node known as alive. Joining again is as renewing, also after the node's time was over.
func (s *Store) Join(ctx context.Context, node string, ttl time.Duration) error {
	if node == "" || ttl <= 0 {
		return fmt.Errorf("store: node %q joins for %s: it needs a name and a positive time", node, ttl)
	}
	return s.system(ctx, func(c *conn) error {
		_, err := c.exec(sqlJoin, node, time.Now().Add(ttl).UnixMicro())
		return err
	})
}

// Renew prolongs a node's time, counted from when it is written.
func (s *Store) Renew(ctx context.Context, node string, ttl time.Duration) error {
	return s.system(ctx, func(c *conn) error {
		now := time.Now()
		changed, err := c.exec(sqlRenew, now.Add(ttl).UnixMicro(), node, now.UnixMicro())
		if err == nil && changed == 0 {
			err = store.ErrFenced
		}
		return err
	})
}

// Leave ends a node. A node that is not known may leave.
func (s *Store) Leave(ctx context.Context, node string) error {
	return s.system(ctx, func(c *conn) error {
		_, err := c.exec(sqlLeave, node)
		return err
	})
}

// Acquire gives a node the lease of a session. It returns store.ErrFenced to a node that is not known as alive, since
// what it would be given is free for others at once.
func (s *Store) Acquire(ctx context.Context, node, session string) (store.Lease, error) {
	// A node that holds the lease already finds it by reading, without a commit.
	var lease store.Lease
	err := s.read(ctx, func(c *conn) error {
		_, held, err := leaseOf(c, session)
		if err != nil {
			return err
		}
		if held.Node != node {
			return nil
		}
		if err := mustLive(c, node); err != nil {
			return err
		}
		lease = held
		return nil
	})
	if err != nil || lease.Epoch != 0 {
		return lease, err
	}
	err = s.system(ctx, func(c *conn) error {
		if err := mustLive(c, node); err != nil {
			return err
		}
		no, held, err := leaseOf(c, session)
		if err != nil {
			return err
		}
		if held.Node == node && held.Epoch > 0 {
			lease = held
			return nil
		}
		switch live, err := alive(c, held.Node); {
		case err != nil:
			return err
		case live:
			return store.ErrHeld
		}
		held.Node, held.Epoch = node, held.Epoch+1
		if _, err := c.exec(sqlTakeLease, held.Node, held.Epoch, no); err != nil {
			return err
		}
		lease = held
		return nil
	})
	if err != nil {
		return store.Lease{}, err
	}
	return lease, nil
}

// leaseOf reads the lease of a session; its epoch is 0 if nobody ever held it.
func leaseOf(c *conn, session string) (no int64, lease store.Lease, err error) {
	lease.Session = session
	err = c.row(sqlLease, []any{session}, &no, &lease.Workspace, &lease.Node, &lease.Epoch)
	return no, lease, err
}

func alive(c *conn, node string) (bool, error) {
	var n int
	err := c.row(sqlAlive, []any{node, time.Now().UnixMicro()}, &n)
	return n > 0, err
}

func mustLive(c *conn, node string) error {
	switch live, err := alive(c, node); {
	case err != nil:
		return err
	case !live:
		return fmt.Errorf("%w: node %s is not known as alive, it has to join first", store.ErrFenced, node)
	}
	return nil
}

// Due returns sessions that want to be driven.
func (s *Store) Due(ctx context.Context, now time.Time, limit int) ([]store.Due, error) {
	if limit <= 0 {
		return nil, errLimit
	}
	var page []store.Due
	err := s.read(ctx, func(c *conn) error {
		return c.each(ctx, sqlDue, []any{now.UnixMicro(), limit}, func(rows *sql.Rows) (bool, error) {
			var d store.Due
			var wake sql.NullInt64
			err := rows.Scan(&d.Session, &d.Workspace, &wake)
			d.Wake = instant(wake)
			page = append(page, d)
			return true, err
		})
	})
	return page, err
}

// NextWake returns the earliest Wake after now.
func (s *Store) NextWake(ctx context.Context, now time.Time) (time.Time, error) {
	var wake sql.NullInt64
	err := s.read(ctx, func(c *conn) error { return c.row(sqlNextWake, []any{now.UnixMicro()}, &wake) })
	return instant(wake), err
}

// CreateWorkspace returns store.ErrConflict if the id is taken.
func (s *Store) CreateWorkspace(ctx context.Context, id, name string) error {
	return s.system(ctx, func(c *conn) error {
		changed, err := c.exec(sqlAddWorkspace, id, name)
		if err == nil && changed == 0 {
			err = store.ErrConflict
		}
		return err
	})
}

// Workspaces returns the ids of all workspaces, oldest first.
func (s *Store) Workspaces(ctx context.Context) ([]string, error) {
	var ids []string
	err := s.read(ctx, func(c *conn) error {
		return c.each(ctx, sqlWorkspaces, nil, func(rows *sql.Rows) (bool, error) {
			var id string
			err := rows.Scan(&id)
			ids = append(ids, id)
			return true, err
		})
	})
	return ids, err
}

// ContentUsed reports whether any document has this content.
func (s *Store) ContentUsed(ctx context.Context, content string) (used bool, err error) {
	err = s.read(ctx, func(c *conn) error { return c.row(sqlContentUsed, []any{content}, &used) })
	return used, err
}

// PutKey adds a key. It returns store.ErrNotFound if there is no such workspace, store.ErrConflict if the id or the hash
// is taken.
func (s *Store) PutKey(ctx context.Context, key store.Key) error {
	return s.system(ctx, func(c *conn) error {
		var n int
		if err := c.row(sqlHasWorkspace, []any{key.Workspace}, &n); err != nil {
			return err
		}
		if n == 0 {
			return store.ErrNotFound
		}
		changed, err := c.exec(sqlAddKey, key.ID, key.Workspace, key.Name, key.Hint, key.Hash[:], key.Created.UnixMicro(), timestamp(key.Revoked))
		if err == nil && changed == 0 {
			err = store.ErrConflict
		}
		return err
	})
}

// KeyByHash returns the key with this hash, revoked or not.
func (s *Store) KeyByHash(ctx context.Context, hash [32]byte) (store.Key, error) {
	keys, err := s.keys(ctx, sqlKeyByHash, hash[:])
	if err != nil {
		return store.Key{}, err
	}
	if len(keys) == 0 {
		return store.Key{}, store.ErrNotFound
	}
	return keys[0], nil
}

// Keys returns all keys, oldest first.
func (s *Store) Keys(ctx context.Context) ([]store.Key, error) { return s.keys(ctx, sqlKeys) }

func (s *Store) keys(ctx context.Context, text string, args ...any) ([]store.Key, error) {
	var keys []store.Key
	err := s.read(ctx, func(c *conn) error {
		return c.each(ctx, text, args, func(rows *sql.Rows) (bool, error) {
			var k store.Key
			var hash []byte
			var created, revoked sql.NullInt64
			if err := rows.Scan(&k.ID, &k.Workspace, &k.Name, &k.Hint, &hash, &created, &revoked); err != nil {
				return false, err
			}
			if copy(k.Hash[:], hash) != len(k.Hash) {
				return false, errors.New("a key's hash has a wrong length")
			}
			k.Created, k.Revoked = instant(created), instant(revoked)
			keys = append(keys, k)
			return true, nil
		})
	})
	return keys, err
}

// RevokeKey ends a key. A key that was revoked before keeps that time.
func (s *Store) RevokeKey(ctx context.Context, id string, at time.Time) error {
	return s.system(ctx, func(c *conn) error {
		changed, err := c.exec(sqlRevokeKey, timestamp(at), id)
		if err == nil && changed == 0 {
			err = store.ErrNotFound
		}
		return err
	})
}

// ForgetAnswers removes remembered answers older than before.
func (s *Store) ForgetAnswers(ctx context.Context, before time.Time) error {
	return s.system(ctx, func(c *conn) error {
		_, err := c.exec(sqlForgetAnswers, ceiling(before))
		return err
	})
}

// Ping commits a row, so that it fails when the disk is full or cannot be written.
func (s *Store) Ping(ctx context.Context) error {
	return s.system(ctx, func(c *conn) error {
		_, err := c.exec(sqlProbe, time.Now().UnixMicro())
		return err
	})
}
