// Package blob keeps large immutable contents in a directory, each under the SHA-256 of its bytes.
//
// # Invariants
//
//   - A content is under its name whole or not at all. It is written to a temporary file, synced, and renamed; then the
//     directory is synced. When Put returns, it survives a power failure.
//   - What is under a name has that hash: equal contents are kept once, whoever puts them, also at the same time.
//   - A name is 64 lower-case hexadecimal digits and nothing else, so no name leads out of the directory.
//
// The store knows nothing of references: whoever deletes has to know that nobody else refers to the content, also not a
// Put that is under way. What a crash leaves unfinished is removed by the next Open; one process owns a directory.
package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The ways in which a store refuses.
var (
	// ErrNotFound says that there is no content with this hash.
	ErrNotFound = errors.New("blob: not found")
	// ErrHash says that a string is no hash.
	ErrHash = errors.New("blob: a hash is 64 lower-case hexadecimal digits")
)

// TooLargeError says that a content has more bytes than were allowed. Nothing of it was kept.
type TooLargeError struct{ Max int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("blob: the content has more than the allowed %d bytes", e.Max)
}

const (
	contents  = "sha256"
	temporary = "tmp"
)

// Store is a directory of contents. It is safe for concurrent use.
type Store struct{ dir string }

// Open opens the store in a directory, which it makes if it does not exist, and removes what a crash left unfinished.
func Open(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("blob: directory: %w", err)
	}
	s := &Store{dir: dir}
	// Only the temporary directory of this store is emptied; its name says whose it is.
	if err := os.RemoveAll(filepath.Join(dir, temporary)); err != nil {
		return nil, fmt.Errorf("blob: remove what was unfinished: %w", err)
	}
	names := []string{temporary, contents}
	for shard := range 256 {
		names = append(names, filepath.Join(contents, fmt.Sprintf("%02x", shard)))
	}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, fmt.Errorf("blob: make the directory: %w", err)
		}
	}
	// Put relies on all directories being durable, so that it has to sync only the one that it changes.
	if err := errors.Join(syncDir(filepath.Join(dir, contents)), syncDir(dir), syncDir(filepath.Dir(dir))); err != nil {
		return nil, err
	}
	return s, nil
}

// Put keeps what it reads and returns its hash and size. It reads at most one byte more than most, and refuses more with a
// TooLargeError. It returns when the content is durable. An error of the reader is returned wrapped, and so is ctx's,
// which is looked at between reads.
func (s *Store) Put(ctx context.Context, content io.Reader, most int64) (hash string, size int64, err error) {
	file, err := os.CreateTemp(filepath.Join(s.dir, temporary), "")
	if err != nil {
		return "", 0, fmt.Errorf("blob: make a temporary file: %w", err)
	}
	named := false
	defer func() {
		err = errors.Join(err, file.Close())
		if !named {
			err = errors.Join(err, os.Remove(file.Name()))
		}
		if err != nil {
			hash, size = "", 0
		}
	}()

	digest := sha256.New()
	limited := &io.LimitedReader{R: &interruptible{ctx, content}, N: most}
	if size, err = io.Copy(io.MultiWriter(file, digest), limited); err != nil {
		return "", 0, fmt.Errorf("blob: copy the content: %w", err)
	}
	if limited.N <= 0 {
		// The bound was reached; whether it was passed only another byte can tell.
		switch n, err := io.ReadFull(limited.R, make([]byte, 1)); {
		case n > 0:
			return "", 0, &TooLargeError{Max: most}
		case err != io.EOF:
			return "", 0, fmt.Errorf("blob: copy the content: %w", err)
		}
	}
	hash = hex.EncodeToString(digest.Sum(nil))
	final := s.path(hash)
	same, err := s.holds(final, size)
	if err != nil {
		return "", 0, err
	}
	if same {
		// Whoever removes what has not been put for long must see that it was put again.
		now := time.Now()
		if err := os.Chtimes(final, now, now); err != nil {
			return "", 0, fmt.Errorf("blob: renew the content: %w", err)
		}
	} else {
		// Sandboxes, which run as other users, are shown contents read-only; the directories above keep others out.
		if err := errors.Join(file.Chmod(0o444), file.Sync()); err != nil {
			return "", 0, fmt.Errorf("blob: sync the content: %w", err)
		}
		// If somebody else has placed the same content meanwhile, it is replaced by its equal; whoever has opened it
		// keeps what he opened.
		if err := os.Rename(file.Name(), final); err != nil {
			return "", 0, fmt.Errorf("blob: name the content: %w", err)
		}
		named = true
	}
	// Also if it was there: the one who placed it may not have come to this yet.
	return hash, size, syncDir(filepath.Dir(final))
}

// holds reports whether a content is there already. One of another size was damaged outside of this program, and is
// written again.
func (s *Store) holds(path string, size int64) (bool, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("blob: look for the content: %w", err)
	}
	return info.Mode().IsRegular() && info.Size() == size, nil
}

// Open opens a content for reading. The caller closes it; it stays readable when the content is deleted meanwhile.
func (s *Store) Open(hash string) (*os.File, error) {
	path, err := s.Path(hash)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("blob: open: %w", err)
	}
	return file, nil
}

// Path is the file that holds a content if it is there. It must not be written to.
func (s *Store) Path(hash string) (string, error) {
	if !valid(hash) {
		return "", ErrHash
	}
	return s.path(hash), nil
}

// path spreads the contents over 256 directories, because some file systems are slow with very large ones.
func (s *Store) path(hash string) string {
	return filepath.Join(s.dir, contents, hash[:2], hash)
}

// Delete removes a content. It returns when that is durable, and ErrNotFound if there is none.
func (s *Store) Delete(hash string) error {
	path, err := s.Path(hash)
	if err != nil {
		return err
	}
	switch err := os.Remove(path); {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotFound
	case err != nil:
		return fmt.Errorf("blob: delete: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

// Each calls visit for each content with the time at which it was last put. An error of visit ends it.
func (s *Store) Each(visit func(hash string, put time.Time) error) error {
	return filepath.WalkDir(filepath.Join(s.dir, contents), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !valid(entry.Name()) {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted meanwhile
		}
		if err != nil {
			return fmt.Errorf("blob: look at a content: %w", err)
		}
		return visit(entry.Name(), info.ModTime())
	})
}

func valid(hash string) bool {
	if len(hash) != hex.EncodedLen(sha256.Size) {
		return false
	}
	return len(bytes.Trim([]byte(hash), "0123456789abcdef")) == 0
}

// interruptible ends reading when a context ends.
type interruptible struct {
	ctx    context.Context
	reader io.Reader
}

func (r *interruptible) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.reader.Read(p)
}

// syncDir makes the names in a directory durable.
func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("blob: open a directory: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("blob: sync a directory: %w", err)
	}
	return nil
}
