package blob_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/perdure/perdure/internal/blob"
)

// childDir makes this test binary a process that puts contents for ever, and says so after each.
const childDir = "PERDURE_TEST_BLOB_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		s, err := blob.Open(dir)
		for err == nil {
			var hash string
			hash, _, err = s.Put(context.Background(), io.LimitReader(rand.Reader, 200_000), 1<<20)
			fmt.Println(hash)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func open(t *testing.T) (*blob.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "blobs")
	s, err := blob.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func put(t *testing.T, s *blob.Store, content string) string {
	t.Helper()
	hash, size, err := s.Put(t.Context(), strings.NewReader(content), 1<<20)
	if err != nil || size != int64(len(content)) {
		t.Fatalf("put %d bytes: size %d, %v", len(content), size, err)
	}
	return hash
}

// files lists the regular files under a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestPutAndOpen(t *testing.T) {
	s, dir := open(t)
	for _, content := range []string{"", "a", "\x00\xff", strings.Repeat("x", 1<<20)} {
		hash := put(t, s, content)
		if sum := sha256.Sum256([]byte(content)); hash != hex.EncodeToString(sum[:]) {
			t.Errorf("the name is %s, which is not the hash", hash)
		}
		s, err := blob.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		file, err := s.Open(hash)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(file)
		file.Close()
		if err != nil || string(got) != content {
			t.Errorf("%d bytes came back as %d, or changed: %v", len(content), len(got), err)
		}
		path, err := s.Path(hash)
		if err != nil || path != file.Name() {
			t.Errorf("path is %s, %v", path, err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o444 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
}

func TestBounds(t *testing.T) {
	s, dir := open(t)
	for _, c := range []struct {
		size int
		max  int64
		fits bool
	}{{0, 0, true}, {1, 0, false}, {10, 10, true}, {11, 10, false}, {9, 10, true}, {1 << 20, 10, false}, {0, -1, true}, {1, -1, false}} {
		// Readers that give one byte at a time, and the end together with the last bytes, are readers too.
		for name, reader := range map[string]func(io.Reader) io.Reader{"plain": func(r io.Reader) io.Reader { return r }, "byte": iotest.OneByteReader, "data and EOF": iotest.DataErrReader} {
			before := len(files(t, dir))
			hash, size, err := s.Put(t.Context(), reader(bytes.NewReader(make([]byte, c.size))), c.max)
			var large *blob.TooLargeError
			switch {
			case c.fits && (err != nil || size != int64(c.size)):
				t.Errorf("%s: %d bytes of %d: size %d, %v", name, c.size, c.max, size, err)
			case !c.fits && (!errors.As(err, &large) || large.Max != c.max || hash != "" || size != 0):
				t.Errorf("%s: %d bytes of %d: %q, %d, %v", name, c.size, c.max, hash, size, err)
			case !c.fits && len(files(t, dir)) != before:
				t.Errorf("%s: a refused content left a file", name)
			}
		}
	}
}

// No more than the bound and one byte is read of what has no end.
func TestEndless(t *testing.T) {
	s, _ := open(t)
	counted := &counter{}
	_, _, err := s.Put(t.Context(), counted, 100_000)
	var large *blob.TooLargeError
	if !errors.As(err, &large) || counted.n > 100_001 {
		t.Errorf("read %d bytes: %v", counted.n, err)
	}
}

type counter struct{ n int64 }

func (c *counter) Read(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func TestFailingReaders(t *testing.T) {
	s, dir := open(t)
	cause := errors.New("the connection broke")
	_, _, err := s.Put(t.Context(), io.MultiReader(strings.NewReader("some"), iotest.ErrReader(cause)), 100)
	if !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	_, _, err = s.Put(t.Context(), io.MultiReader(strings.NewReader("some"), iotest.ErrReader(cause)), 4)
	if !errors.Is(err, cause) {
		t.Errorf("an error where the end should be: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err = s.Put(ctx, io.MultiReader(strings.NewReader("some"), cancels{cancel}, &counter{}), 1<<40)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("failed puts left %v", left)
	}
}

type cancels struct{ cancel context.CancelFunc }

func (c cancels) Read([]byte) (int, error) {
	c.cancel()
	return 0, io.EOF
}

func TestEqualContents(t *testing.T) {
	s, dir := open(t)
	var all sync.WaitGroup
	hashes := make([]string, 16)
	for i := range hashes {
		all.Go(func() {
			var err error
			hashes[i], _, err = s.Put(context.Background(), iotest.HalfReader(strings.NewReader(strings.Repeat("same", 50_000))), 1<<20)
			if err != nil {
				t.Error(err)
				return
			}
			file, err := s.Open(hashes[i])
			if err != nil {
				t.Error(err)
				return
			}
			defer file.Close()
			if n, err := io.Copy(io.Discard, file); n != 200_000 || err != nil {
				t.Errorf("read %d bytes, %v", n, err)
			}
		})
	}
	all.Wait()
	for _, hash := range hashes {
		if hash != hashes[0] {
			t.Errorf("one content has the names %s and %s", hash, hashes[0])
		}
	}
	if left := files(t, dir); len(left) != 1 {
		t.Errorf("equal contents take %d files: %v", len(left), left)
	}
	put(t, s, "other")
	if left := files(t, dir); len(left) != 2 {
		t.Errorf("two contents take %d files: %v", len(left), left)
	}
}

func TestDelete(t *testing.T) {
	s, dir := open(t)
	hash := put(t, s, "content")
	reading, err := s.Open(hash)
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Close()
	if err := s.Delete(hash); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(hash); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("a deleted content: %v", err)
	}
	if err := s.Delete(hash); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("deleting it again: %v", err)
	}
	if got, err := io.ReadAll(reading); string(got) != "content" || err != nil {
		t.Errorf("who had it open reads %q, %v", got, err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	put(t, s, "content")
}

func TestNamesThatAreNoHash(t *testing.T) {
	s, dir := open(t)
	hash := put(t, s, "content")
	outside := filepath.Join(filepath.Dir(dir), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o444); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"", ".", "..", "/", "../../outside", "../../../outside", outside, hash[:63], hash + "0", strings.ToUpper(hash),
		hash[:2] + "/" + hash[3:], hash[:61] + "/..", hash[:63] + "\x00", hash[:63] + "g", " " + hash[:63], strings.Repeat("../", 21) + "a",
	} {
		if _, err := s.Open(name); !errors.Is(err, blob.ErrHash) {
			t.Errorf("open %q: %v", name, err)
		}
		if _, err := s.Path(name); !errors.Is(err, blob.ErrHash) {
			t.Errorf("path %q: %v", name, err)
		}
		if err := s.Delete(name); !errors.Is(err, blob.ErrHash) {
			t.Errorf("delete %q: %v", name, err)
		}
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

// A content that was cut outside of this program is repaired by putting it again.
func TestDamagedContent(t *testing.T) {
	s, _ := open(t)
	hash := put(t, s, "content")
	path, err := s.Path(hash)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 3); err != nil {
		t.Fatal(err)
	}
	put(t, s, "content")
	if got, err := os.ReadFile(path); string(got) != "content" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// A process that is killed while it puts leaves what it acknowledged, nothing torn, and after the next Open nothing
// unfinished.
func TestKilledWhilePutting(t *testing.T) {
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	var complaint strings.Builder
	child.Stderr = &complaint
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var acknowledged []string
	for len(acknowledged) < 20 {
		var hash string
		if _, err := fmt.Fscanln(out, &hash); err != nil {
			t.Fatalf("%v: %s", err, complaint.String())
		}
		acknowledged = append(acknowledged, hash)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		t.Fatal("the child was not killed")
	}
	// What a kill leaves between two steps is not left to chance.
	if err := os.WriteFile(filepath.Join(dir, "tmp", "unfinished"), []byte("half"), 0o444); err != nil {
		t.Fatal(err)
	}

	s, err := blob.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, hash := range acknowledged {
		file, err := s.Open(hash)
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	for _, path := range files(t, dir) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); filepath.Base(path) != hex.EncodeToString(sum[:]) {
			t.Errorf("%s holds %d bytes of another hash", path, len(content))
		}
	}
}
