//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/sandbox/wire"
)

// syncUploads makes the uploads directory hold what the spec lists and nothing else. The sandbox sees the directory
// itself, so what appears here appears there. A file's content never changes, so one that is there stays as it is. The
// caller holds starting.
func (s *supervisor) syncUploads(uploads []wire.Upload) error {
	if s.uploads != nil && slices.Equal(*s.uploads, uploads) {
		return nil
	}
	listed := map[string]bool{}
	for _, upload := range uploads {
		name, ok := strings.CutPrefix(upload.Path, uploadsInside+"/")
		if !ok || !fs.ValidPath(name) || name == "." {
			return &wire.Failure{Code: wire.CodeInvalid, Message: fmt.Sprintf("the path of an upload, %q, is not below %s", upload.Path, uploadsInside)}
		}
		listed[name] = true
		if err := s.upload(upload.Source, filepath.Join(s.dir.Uploads(), name)); err != nil {
			return fmt.Errorf("%s: %w", upload.Path, err)
		}
	}
	err := filepath.WalkDir(s.dir.Uploads(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(s.dir.Uploads(), path)
		if err != nil || listed[name] {
			return err
		}
		return os.Remove(path)
	})
	if err != nil {
		return err
	}
	s.uploads = &uploads
	return nil
}

func (s *supervisor) upload(source, target string) (err error) {
	if _, err := os.Lstat(target); err == nil {
		return nil
	}
	if err := makeReadable(s.dir.Uploads(), filepath.Dir(target)); err != nil {
		return err
	}
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	// Nothing half-copied is ever seen under the name.
	to, err := os.CreateTemp(s.dir.Uploads(), ".part-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(to.Name()))
		}
	}()
	_, err = io.Copy(to, from) // in the kernel, without copying where the file system can
	if err = errors.Join(err, to.Chmod(0o444), to.Sync(), to.Close()); err != nil {
		return err
	}
	return os.Rename(to.Name(), target)
}

// makeReadable makes the directories from base to dir for everybody to read, whatever the umask.
func makeReadable(base, dir string) error {
	if dir == base {
		return os.Chmod(base, 0o755)
	}
	if err := makeReadable(base, filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.Chmod(dir, 0o755)
}
