//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

func TestUsersAreNeverShared(t *testing.T) {
	t.Parallel()
	u := &uids{dir: t.TempDir(), base: 300_000}
	session := func(name string) string {
		dir := filepath.Join(u.dir, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	var mu sync.Mutex
	owners := map[int]string{}
	var running sync.WaitGroup
	for i := range 40 {
		name := fmt.Sprintf("s%d", i/2) // two servers for each session
		dir := session(name)
		running.Go(func() {
			uid, err := u.of(dir)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if other, ok := owners[uid]; ok && other != name {
				t.Errorf("%s and %s have user %d", name, other, uid)
			}
			owners[uid] = name
		})
	}
	running.Wait()
	if len(owners) != 20 {
		t.Errorf("20 sessions have %d users", len(owners))
	}
	if _, taken := owners[u.probeUID()]; taken {
		t.Error("a session has the user for trying out")
	}
	// When all were given once, those that are in use are passed over.
	if err := os.WriteFile(filepath.Join(u.dir, ".uids"), []byte(strconv.Itoa(uidRange-1)), 0o600); err != nil {
		t.Fatal(err)
	}
	uid, err := u.of(session("again"))
	if err != nil || owners[uid] != "" || uid <= u.base || uid >= u.base+uidRange {
		t.Errorf("got %d (%v), which %q has", uid, err, owners[uid])
	}
	if err := os.WriteFile(filepath.Join(session("damaged"), "uid"), []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if uid, err := u.of(session("damaged")); err == nil {
		t.Errorf("user %d was accepted", uid)
	}
}
