// Package files keeps the files of workspaces: what clients uploaded, the copies that sessions were given, and what agents
// left for their users.
//
// A file is immutable: its content is a blob named by its hash, which files share, and its metadata is a document. A blob
// is durable before a document names it; one that no document names any more is removed by Sweep.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/sandbox"
	"github.com/perdure/perdure/internal/store"
)

// Limits of files.
const (
	MaxSize    = 500 << 20 // bytes of one file
	maxOutputs = 1000      // files that are collected from one session
)

// Files is the files of all workspaces. It is safe for concurrent use.
type Files struct {
	Store     store.Store
	Blobs     *blob.Store
	Sandboxes sandbox.Sandboxes
}

// record is what a file's document holds.
type record struct {
	File resource.File `json:"file"`
	Blob string        `json:"blob"`
	// Output is where in the session's outputs directory the file was, and Modified the time that it had there.
	Output   string    `json:"output,omitzero"`
	Modified time.Time `json:"modified,omitzero"`
}

func (r record) document() (store.Document, error) {
	body, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return store.Document{}, fmt.Errorf("files: write the record of %s: %w", r.File.ID, err)
	}
	d := store.Document{ID: r.File.ID, Body: body, Created: r.File.CreatedAt.Time, Content: r.Blob}
	if r.File.Scope != nil {
		d.Scope = r.File.Scope.ID
	}
	return d, nil
}

func read(d store.Document) (record, error) {
	var r record
	if err := json.Unmarshal(d.Body, &r); err != nil {
		return record{}, fmt.Errorf("files: read the record of %s: %w", d.ID, err)
	}
	return r, nil
}

func find(r store.Reader, file string) (record, error) {
	d, err := r.Document(store.Files, file)
	if errors.Is(err, store.ErrNotFound) {
		return record{}, problem.NotFoundf("File not found.")
	}
	if err != nil {
		return record{}, err
	}
	return read(d)
}

func (f *Files) find(ctx context.Context, workspace, file string) (found record, err error) {
	err = f.Store.In(workspace).View(ctx, func(r store.Reader) error {
		found, err = find(r, file)
		return err
	})
	return found, err
}

// Get is the metadata of a file.
func (f *Files) Get(ctx context.Context, workspace, file string) (resource.File, error) {
	r, err := f.find(ctx, workspace, file)
	return r.File, err
}

// Staged is a file whose content is durable and that does not exist yet.
type Staged struct {
	File   resource.File
	record record
}

// Put makes the staged file exist.
func (s *Staged) Put(w store.Writer) error {
	d, err := s.record.document()
	if err != nil {
		return err
	}
	return w.Put(store.Files, d)
}

// Expire ends the life of the file after a time; 0 never does.
func (s *Staged) Expire(after time.Duration) {
	if after > 0 {
		at := resource.At(s.File.CreatedAt.Add(after))
		s.File.ExpiresAt, s.record.File.ExpiresAt = &at, &at
	}
}

// Fingerprint tells an upload from others: the same name, kind, life and content have the same.
func (s *Staged) Fingerprint() string {
	f := s.File
	expiry := time.Duration(0)
	if f.ExpiresAt != nil {
		expiry = f.ExpiresAt.Sub(f.CreatedAt.Time)
	}
	return fmt.Sprintf("%s\n%q\n%s\n%d", s.record.Blob, f.Filename, f.MimeType, expiry)
}

// Stage makes the content of an upload durable.
func (f *Files) Stage(ctx context.Context, name, mediaType string, content io.Reader) (*Staged, error) {
	name, err := resource.CleanFilename(name, mediaType)
	if err != nil {
		return nil, err
	}
	hash, size, err := f.put(ctx, content)
	if err != nil {
		return nil, err
	}
	file := newFile(name, mediaType, size)
	return &Staged{File: file, record: record{File: file, Blob: hash}}, nil
}

func (f *Files) put(ctx context.Context, content io.Reader) (hash string, size int64, err error) {
	hash, size, err = f.Blobs.Put(ctx, content, MaxSize)
	var large *blob.TooLargeError
	if errors.As(err, &large) {
		return "", 0, problem.New(problem.TooLarge, "The file is larger than %d bytes.", MaxSize)
	}
	return hash, size, err
}

func newFile(name, mediaType string, size int64) resource.File {
	return resource.File{
		ID: id.New(id.File), Type: "file", Filename: name, MimeType: mediaOf(name, mediaType), SizeBytes: size,
		CreatedAt: resource.At(time.Now()),
	}
}

func mediaOf(name, given string) string {
	if media, _, err := mime.ParseMediaType(given); err == nil && media != "application/octet-stream" {
		return media
	}
	if media, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(name))); err == nil {
		return media
	}
	return "application/octet-stream"
}

// expired reports whether the content of a file is no longer kept for its owner.
func expired(f resource.File) bool { return f.ExpiresAt != nil && time.Now().After(f.ExpiresAt.Time) }

// Open opens the content of a file for the server's own use.
func (f *Files) Open(ctx context.Context, workspace, file string) (io.ReadCloser, string, error) {
	r, err := f.find(ctx, workspace, file)
	if err != nil {
		return nil, "", err
	}
	content, err := f.Blobs.Open(r.Blob)
	return content, r.File.MimeType, err
}

// Path is where the content of a file is on this host.
func (f *Files) Path(ctx context.Context, workspace, file string) (string, error) {
	r, err := f.find(ctx, workspace, file)
	if err != nil {
		return "", err
	}
	return f.Blobs.Path(r.Blob)
}

// Download opens the content of a file for its owner, who may have what agents made and not what was uploaded.
func (f *Files) Download(ctx context.Context, workspace, file string) (resource.File, io.ReadCloser, error) {
	r, err := f.find(ctx, workspace, file)
	switch {
	case err != nil:
		return resource.File{}, nil, err
	case expired(r.File):
		return resource.File{}, nil, problem.NotFoundf("File '%s' has expired.", file).WithCode("file_expired")
	case !r.File.Downloadable:
		return resource.File{}, nil, problem.Invalidf("File '%s' is not downloadable", file).WithCode("file_not_downloadable")
	}
	content, err := f.Blobs.Open(r.Blob)
	return r.File, content, err
}

// Query selects files.
type Query struct {
	After string // the id after which the page begins, newest first
	Limit int
	Scope string   // a session
	IDs   []string // nil for any
}

// List returns files, newest first.
func (f *Files) List(ctx context.Context, workspace string, q Query) ([]resource.File, error) {
	var list []resource.File
	err := f.Store.In(workspace).View(ctx, func(r store.Reader) error {
		documents, err := r.Documents(store.Files, store.DocumentQuery{After: q.After, Limit: q.Limit, Scope: q.Scope, IDs: q.IDs})
		if err != nil {
			return err
		}
		for _, d := range documents {
			record, err := read(d)
			if err != nil {
				return err
			}
			list = append(list, record.File)
		}
		return nil
	})
	return list, err
}

// Mount makes copies of files for a session, each with an id of its own, and the resources that name them. The copies
// exist when they are Put.
func (f *Files) Mount(r store.Reader, session string, mounts []resource.FileMount) ([]resource.FileResource, []*Staged, error) {
	var resources []resource.FileResource
	var copies []*Staged
	for _, m := range mounts {
		found, err := find(r, m.FileID)
		if err != nil {
			return nil, nil, err
		}
		if expired(found.File) {
			return nil, nil, problem.NotFoundf("File '%s' has expired.", m.FileID).WithCode("file_expired")
		}
		file := found.File
		file.ID, file.CreatedAt = id.New(id.File), resource.At(time.Now())
		file.Scope, file.Downloadable, file.ExpiresAt = resource.SessionScope(session), false, nil
		copies = append(copies, &Staged{File: file, record: record{File: file, Blob: found.Blob}})
		resources = append(resources, resource.NewFileResource(id.New(id.SessionResource), file.ID, m.MountPath, file.CreatedAt))
	}
	return resources, copies, nil
}

// PutAll makes staged files exist.
func PutAll(w store.Writer, staged []*Staged) error {
	for _, s := range staged {
		if err := s.Put(w); err != nil {
			return err
		}
	}
	return nil
}

// Collect makes files of what a session left in its outputs directory. What has not changed since it was last collected
// stays the file that it is.
func (f *Files) Collect(ctx context.Context, workspace, session string) error {
	outputs, err := f.Sandboxes.Outputs(ctx, session, maxOutputs)
	if err != nil || len(outputs) == 0 {
		return err
	}
	known, err := f.outputs(ctx, workspace, session)
	if err != nil {
		return err
	}
	for _, o := range outputs {
		old, ok := known[o.Path]
		if ok && old.File.SizeBytes == o.Size && old.Modified.Equal(o.Modified.Truncate(time.Microsecond)) {
			continue
		}
		if err := f.collect(ctx, workspace, session, o, old); err != nil {
			return err
		}
	}
	return nil
}

func (f *Files) collect(ctx context.Context, workspace, session string, o sandbox.Output, old record) error {
	content, err := f.Sandboxes.OpenOutput(ctx, session, o.Path)
	if err != nil {
		return fmt.Errorf("files: open output %q: %w", o.Path, err)
	}
	defer content.Close()
	hash, size, err := f.put(ctx, content)
	if err != nil {
		return err
	}
	name, err := resource.CleanFilename(path.Base(o.Path), "")
	if err != nil {
		name = "unnamed" + path.Ext(o.Path)
		if name, err = resource.CleanFilename(name, ""); err != nil {
			name = "unnamed"
		}
	}
	file := newFile(name, "", size)
	file.MimeType = f.sniff(hash, file.MimeType)
	file.Downloadable, file.Scope = true, resource.SessionScope(session)
	d, err := record{File: file, Blob: hash, Output: o.Path, Modified: o.Modified.Truncate(time.Microsecond)}.document()
	if err != nil {
		return err
	}
	return f.Store.In(workspace).Update(ctx, func(w store.Writer) error {
		if _, err := w.Session(session); err != nil {
			return err
		}
		if old.File.ID != "" {
			if err := w.Delete(store.Files, old.File.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		return w.Put(store.Files, d)
	})
}

// sniff finds the media type of a file whose name does not tell.
func (f *Files) sniff(hash, media string) string {
	if media != "application/octet-stream" {
		return media
	}
	content, err := f.Blobs.Open(hash)
	if err != nil {
		return media
	}
	defer content.Close()
	head := make([]byte, 512)
	n, err := io.ReadFull(content, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return media
	}
	detected, _, _ := strings.Cut(http.DetectContentType(head[:n]), ";")
	return detected
}

func (f *Files) outputs(ctx context.Context, workspace, session string) (map[string]record, error) {
	known := map[string]record{}
	err := f.Store.In(workspace).View(ctx, func(r store.Reader) error {
		documents, err := r.Documents(store.Files, store.DocumentQuery{Limit: 10 * maxOutputs, Scope: session})
		if err != nil {
			return err
		}
		for _, d := range slices.Backward(documents) {
			record, err := read(d)
			if err != nil {
				return err
			}
			if record.Output != "" {
				known[record.Output] = record
			}
		}
		return nil
	})
	return known, err
}

// Delete removes a file. Its content goes when no other file shares it.
func (f *Files) Delete(w store.Writer, file string) error {
	err := w.Delete(store.Files, file)
	if errors.Is(err, store.ErrNotFound) {
		return problem.NotFoundf("File not found.")
	}
	return err
}

// sweepAge is how old a blob must be before it is removed: its document may be about to be written.
const sweepAge = time.Hour

// Sweep removes content that no file has.
func (f *Files) Sweep(ctx context.Context) error {
	return f.Blobs.Each(func(hash string, at time.Time) error {
		if time.Since(at) < sweepAge {
			return ctx.Err()
		}
		used, err := f.Store.ContentUsed(ctx, hash)
		if err != nil || used {
			return err
		}
		if err := f.Blobs.Delete(hash); err != nil && !errors.Is(err, blob.ErrNotFound) {
			return err
		}
		return nil
	})
}
