package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// uids gives each session a user of the host. A number is not used again until all others were, and never while a session
// that has it exists: files that were overlooked somewhere must not become another session's.
type uids struct {
	dir  string
	base int
}

// probeUID is for trying out the host; sessions begin above it.
func (u *uids) probeUID() int { return u.base }

// of returns the session's user, which is recorded in its directory.
func (u *uids) of(sessionDir string) (int, error) {
	record := filepath.Join(sessionDir, "uid")
	if uid, err := readNumber(record); err == nil {
		return uid, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	uid, err := u.allocate()
	if err != nil {
		return 0, fmt.Errorf("find a user for the session: %w", err)
	}
	// Whoever is first decides.
	if err := writeNumber(record, uid); err != nil && !errors.Is(err, os.ErrExist) {
		return 0, err
	}
	return readNumber(record)
}

func (u *uids) allocate() (uid int, err error) {
	counter, err := os.OpenFile(filepath.Join(u.dir, ".uids"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, counter.Close()) }()
	if err := unix.Flock(int(counter.Fd()), unix.LOCK_EX); err != nil {
		return 0, err
	}
	given := 0
	if text, err := os.ReadFile(counter.Name()); err != nil {
		return 0, err
	} else if len(text) > 0 {
		if given, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			return 0, fmt.Errorf("%s is damaged: %w", counter.Name(), err)
		}
	}
	taken := map[int]bool{}
	if given >= uidRange-1 {
		if taken, err = u.taken(); err != nil {
			return 0, err
		}
	}
	for range uidRange {
		uid = u.base + 1 + given%(uidRange-1)
		given++
		if !taken[uid] {
			if _, err := counter.WriteAt([]byte(strconv.Itoa(given)), 0); err != nil {
				return 0, err
			}
			return uid, counter.Sync()
		}
	}
	return 0, errors.New("every one is taken: destroy sessions")
}

func (u *uids) taken() (map[int]bool, error) {
	entries, err := os.ReadDir(u.dir)
	if err != nil {
		return nil, err
	}
	taken := map[int]bool{}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		if uid, err := readNumber(filepath.Join(u.dir, entry.Name(), "uid")); err == nil {
			taken[uid] = true
		} else if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return taken, nil
}

func readNumber(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%s is damaged: %q is no user id", path, text)
	}
	return n, nil
}

// writeNumber makes a file that is whole and durable as soon as it has its name, or fails with os.ErrExist.
func writeNumber(path string, n int) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".part-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.Itoa(n))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Link(f.Name(), path)
	}
	return errors.Join(err, os.Remove(f.Name()))
}
