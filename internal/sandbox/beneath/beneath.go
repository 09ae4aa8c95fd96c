//go:build linux

// Package beneath opens what an agent made, from outside of its sandbox. Whatever lies there, links, fifos, devices or a
// tree that changes meanwhile, an open neither leaves the directory nor blocks.
package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNotRegular says that what is there is not a regular file.
var ErrNotRegular = errors.New("not a regular file")

const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

func open(dir *os.File, name string, flags uint64) (*os.File, error) {
	how := &unix.OpenHow{Flags: flags | unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY, Resolve: resolve}
	for {
		fd, err := unix.Openat2(int(dir.Fd()), name, how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // EAGAIN: something was renamed just then
		default:
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// File opens a regular file below dir for reading. Name is relative and slash-separated.
func File(dir *os.File, name string) (*os.File, fs.FileInfo, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := open(dir, name, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

const (
	maxDepth   = 32
	maxEntries = 100_000
)

// Found is a regular file.
type Found struct {
	Path string
	Info fs.FileInfo
}

// Walk lists at most limit regular files below dir, in the order of their paths. It looks at 100 000 entries and 32
// levels at most, and says whether that cut it short.
func Walk(dir *os.File, limit int) (files []Found, cut bool, err error) {
	w := walk{limit: limit}
	err = w.directory(dir, "", 0)
	slices.SortFunc(w.files, func(a, b Found) int { return strings.Compare(a.Path, b.Path) })
	if len(w.files) > limit {
		w.files, w.cut = w.files[:limit], true
	}
	return w.files, w.cut, err
}

type walk struct {
	limit int
	seen  int
	files []Found
	cut   bool
}

func (w *walk) directory(dir *os.File, prefix string, depth int) error {
	if depth > maxDepth {
		w.cut = true
		return nil
	}
	d, err := open(dir, ".", unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(256)
		if len(names) == 0 || err != nil {
			break
		}
		for _, name := range names {
			if w.seen++; w.seen > maxEntries {
				w.cut = true
				return nil
			}
			if err := w.entry(dir, name, prefix, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *walk) entry(dir *os.File, name, prefix string, depth int) error {
	var stat unix.Stat_t
	if unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil //nolint:nilerr // gone meanwhile
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		f, info, err := File(dir, name)
		if err != nil {
			return nil //nolint:nilerr // changed meanwhile, or not to be read
		}
		w.files = append(w.files, Found{prefix + name, info})
		return f.Close()
	case unix.S_IFDIR:
		below, err := open(dir, name, unix.O_DIRECTORY)
		if err != nil {
			return nil //nolint:nilerr // changed meanwhile, or not to be read
		}
		return errors.Join(w.directory(below, prefix+name+"/", depth+1), below.Close())
	}
	return nil
}

// Directory opens a directory of the host as the place to stay beneath.
func Directory(path string) (*os.File, error) {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open directory: %w", err)
	}
	return f, nil
}
