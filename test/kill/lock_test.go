//go:build linux

package kill

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A child that a killed server was about to start may hold the lock of the data directory for a moment longer than the
// server lived. The next server waits for that, and does not mistake it for a server.
func TestChildHoldsLock(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "hello", hello), "")
	w.kill()
	path := filepath.Join(w.server.Data, "lock")
	lock, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	// The lock names a process that is gone.
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, fmt.Appendln(nil, gone.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
	released := make(chan error, 1)
	go func() {
		tries := -1 // nothing has happened when it is asked first
		watch(t, path, unix.IN_OPEN, "a server that tries again", func() bool {
			tries++
			return tries >= 2
		})
		released <- lock.Close()
	}()
	w.run()
	if err := <-released; err != nil {
		t.Fatal(err)
	}
	c.say("Hello.")
	c.wantIdle("end_turn")
	c.check()
}
