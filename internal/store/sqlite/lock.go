package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dirLock is the right of this process to a data directory. The kernel takes it back when the process dies, however it
// dies; the file itself stays, since removing it would let two processes lock two files of one name.
type dirLock struct{ file *os.File }

func lockDir(dir string) (*dirLock, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: open the lock of the data directory: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &LockedError{Dir: dir, PID: holder(file)}
		}
		return nil, fmt.Errorf("store: lock data directory %s: %w", dir, err)
	}
	lock := &dirLock{file}
	if err := lock.sign(); err != nil {
		return nil, errors.Join(fmt.Errorf("store: write the lock of the data directory: %w", err), lock.release())
	}
	return lock, nil
}

// sign writes the process id for whoever is refused.
func (l *dirLock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func (l *dirLock) release() error { return l.file.Close() }

// holder reads a process id. The holder may be between locking and signing, or have left the file as it was.
func holder(file *os.File) int {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
