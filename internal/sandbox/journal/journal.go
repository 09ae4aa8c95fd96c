//go:build linux

// Package journal is the supervisor's memory of calls, which decides that each happens at most once.
//
// A call has a *started* record, durable before anything of it can happen, and a *receipt*, durable before anybody is
// told of it. Its state is read from the two:
//
//	neither            never heard of: it can be run
//	started only       running, if this supervisor started it; else its outcome is unknown
//	receipt            ended: the receipt is the answer, for ever
//	acknowledged       the result is in the session's log; the records are gone and the call must not be run again
//
// Acknowledged calls leave a mark of 16 bytes each, because a request that was held up on its way may ask for one again.
//
// Only the holder of the session's lock may open a journal.
package journal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/sandbox/wire"
)

// State is how far a call got.
type State int

// The states of a call.
const (
	NeverHeard State = iota
	Started
	Ended
	Acknowledged
)

// Journal is safe for concurrent use; calls about one id must not overlap.
type Journal struct {
	path         string
	dir          *os.File
	acknowledged *os.File

	mu    sync.Mutex
	marks map[mark]struct{}
}

type mark [16]byte

// maxMarks bounds the memory for acknowledged calls; the oldest are forgotten first. A held-up request is not that old.
const maxMarks = 1 << 18

var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// ValidID says whether id can be the name of a call.
func ValidID(id string) bool { return validID.MatchString(id) }

// Open opens the journal in a directory that exists.
func Open(path string) (*Journal, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	j := &Journal{path: path, dir: dir, marks: map[mark]struct{}{}}
	j.acknowledged, err = os.OpenFile(filepath.Join(path, "acknowledged"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	if err := j.load(); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

func (j *Journal) load() error {
	size, err := j.acknowledged.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	var m mark
	// A mark that was cut off by a crash is at the very end. Dropping it keeps the ones after it aligned.
	if rest := size % int64(len(m)); rest != 0 {
		size -= rest
		if err := j.acknowledged.Truncate(size); err != nil {
			return err
		}
	}
	marks := make([]byte, min(size, maxMarks*int64(len(m))))
	if _, err := j.acknowledged.ReadAt(marks, size-int64(len(marks))); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for len(marks) > 0 {
		marks = marks[copy(m[:], marks):]
		j.marks[m] = struct{}{}
	}
	return nil
}

// Close releases the files.
func (j *Journal) Close() error { return errors.Join(j.dir.Close(), j.acknowledged.Close()) }

func (j *Journal) started(id string) string { return filepath.Join(j.path, id+".started") }
func (j *Journal) receipt(id string) string { return filepath.Join(j.path, id+".receipt") }

// Lookup returns the state of a call, and its receipt if it has Ended.
func (j *Journal) Lookup(id string) (State, wire.Result, error) {
	if !ValidID(id) {
		return NeverHeard, wire.Result{}, fmt.Errorf("journal: %q cannot be the id of a call", id)
	}
	j.mu.Lock()
	_, acknowledged := j.marks[markOf(id)]
	j.mu.Unlock()
	if acknowledged {
		return Acknowledged, wire.Result{}, nil
	}
	text, err := os.ReadFile(j.receipt(id))
	if err == nil {
		var result wire.Result
		if err := json.Unmarshal(text, &result); err != nil {
			return NeverHeard, wire.Result{}, fmt.Errorf("journal: the receipt of %s is damaged: %w", id, err)
		}
		return Ended, result, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return NeverHeard, wire.Result{}, err
	}
	_, err = os.Stat(j.started(id))
	switch {
	case err == nil:
		return Started, wire.Result{}, nil
	case errors.Is(err, os.ErrNotExist):
		return NeverHeard, wire.Result{}, nil
	}
	return NeverHeard, wire.Result{}, err
}

// Start makes the started record durable. After an error the call must not be begun. The record is a name: the file has no
// content that would have to be synced.
func (j *Journal) Start(id string) error {
	f, err := os.OpenFile(j.started(id), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("journal: record that %s starts: %w", id, err)
	}
	if err := errors.Join(f.Close(), j.dir.Sync()); err != nil {
		return fmt.Errorf("journal: record that %s starts: %w", id, err)
	}
	return nil
}

// End makes the receipt durable.
func (j *Journal) End(id string, result wire.Result) error {
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("journal: receipt of %s: %w", id, err)
	}
	// The temporary name cannot be the name of a call's record: ids have no dot.
	temporary := filepath.Join(j.path, id+".receipt.part")
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("journal: receipt of %s: %w", id, err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(temporary, j.receipt(id))
	}
	if err = errors.Join(err, j.dir.Sync()); err != nil {
		return fmt.Errorf("journal: receipt of %s: %w", id, err)
	}
	return nil
}

// Acknowledge forgets a call. The mark goes first and the receipt last, so that a crash between them never makes a call
// look as if it had not been heard of. None of it is synced: what a power failure brings back is a receipt too many, and
// no request from before it is still on its way.
func (j *Journal) Acknowledge(id string) error {
	if !ValidID(id) {
		return fmt.Errorf("journal: %q cannot be the id of a call", id)
	}
	m := markOf(id)
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, known := j.marks[m]; !known {
		if _, err := j.acknowledged.Write(m[:]); err != nil {
			return fmt.Errorf("journal: acknowledge %s: %w", id, err)
		}
		j.marks[m] = struct{}{}
	}
	for _, path := range []string{j.started(id), j.receipt(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("journal: acknowledge %s: %w", id, err)
		}
	}
	return nil
}

func markOf(id string) mark {
	sum := sha256.Sum256([]byte(id))
	return mark(sum[:16])
}
