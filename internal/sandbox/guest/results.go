//go:build linux

package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox/tooltext"
)

const (
	// maxSpool bounds what is kept of one call's output.
	maxSpool = 32 << 20
	// maxKept bounds what is kept of all, oldest first to go.
	maxKept = 256 << 20
)

// results is the directory where output is kept while it is printed, and afterwards if it is too long for the model. The
// supervisor reads it when the sandbox has ended under a call.
type results struct {
	dir     string
	shownAs string
}

func (r *results) name(call string) string { return call + ".txt" }

// begin makes the file for a call's output. The directory is the agent's too, so nothing that is there is followed. If the
// file cannot be made, because the disk is full or the agent closed the directory, the output is kept in memory alone: an
// agent that cannot run a command could not clean up either.
func (r *results) begin(call string) *spool {
	s := &spool{}
	path := filepath.Join(r.dir, r.name(call))
	if r.makeRoom() != nil {
		return s
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return s
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		s.file, s.path, s.shownAs = f, path, filepath.Join(r.shownAs, r.name(call))
	}
	return s
}

// whole is the text of a tool that gives it all at once, or a preview of it.
func (r *results) whole(call, text string) string {
	output := tooltext.Output{Head: []byte(text), Total: int64(len(text))}
	if output.Fits() {
		return tooltext.Valid(text)
	}
	s := r.begin(call)
	s.write([]byte(text))
	return s.end()
}

func (r *results) makeRoom() error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return fmt.Errorf("keep output: %w", err)
	}
	type kept struct {
		path string
		size int64
		at   time.Time
	}
	var all []kept
	var total int64
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() || !strings.HasSuffix(entry.Name(), ".txt") {
			continue
		}
		all = append(all, kept{filepath.Join(r.dir, entry.Name()), info.Size(), info.ModTime()})
		total += info.Size()
	}
	slices.SortFunc(all, func(a, b kept) int { return a.at.Compare(b.at) })
	for _, k := range all {
		if total <= maxKept-maxSpool {
			break
		}
		if err := os.Remove(k.path); err != nil {
			return fmt.Errorf("make room for output: %w", err)
		}
		total -= k.size
	}
	return nil
}

// spool takes one call's output: all of it to the file, if there is one, within bounds, and its beginning and end to memory. It is not safe
// for concurrent use.
type spool struct {
	file    *os.File
	path    string
	shownAs string
	head    []byte
	tail    []byte
	total   int64
	kept    int64
	full    bool
}

func (s *spool) write(chunk []byte) {
	s.total += int64(len(chunk))
	s.head = append(s.head, chunk[:min(len(chunk), tooltext.HeadBytes-len(s.head))]...)
	s.tail = append(s.tail, chunk...)
	if len(s.tail) > 4*tooltext.TailBytes {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-tooltext.TailBytes:]...)
	}
	if s.full || s.file == nil {
		return
	}
	n, err := s.file.Write(chunk[:min(int64(len(chunk)), maxSpool-s.kept)])
	s.kept += int64(n)
	s.full = err != nil || s.kept >= maxSpool // with the disk full, what the model is told says how much is missing
}

// end is what the model is given. The file stays only if that is not all.
func (s *spool) end() string {
	output := tooltext.Output{
		Head: s.head, Tail: s.tail[max(0, len(s.tail)-tooltext.TailBytes):], Total: s.total, File: s.shownAs, Lost: s.total - s.kept,
	}
	if s.file != nil {
		_ = s.file.Close() // what could not be written is not in kept
		if output.Fits() {
			_ = os.Remove(s.path) // the agent may have been faster; it is of no use to anybody
		}
	}
	return output.Text()
}
