package api

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"time"

	"github.com/perdure/perdure/internal/files"
	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

func (s *Server) fileRoutes() []route {
	return []route{
		{method: "POST", pattern: "/v1/files", handle: uploadFile, streams: true},
		{method: "GET", pattern: "/v1/files", handle: listFiles},
		{method: "GET", pattern: "/v1/files/{file}", handle: getFile},
		{method: "GET", pattern: "/v1/files/{file}/content", handle: downloadFile, streams: true},
		{method: "DELETE", pattern: "/v1/files/{file}", handle: deleteFile},
	}
}

// uploadFile takes the content first, and then makes the file: the same upload with the same Idempotency-Key is the same
// file.
func uploadFile(c *call) (*reply, error) {
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxUpload)
	form, err := c.r.MultipartReader()
	if err != nil {
		return nil, problem.Invalidf("The request must be multipart/form-data with a field named file.")
	}
	staged, content, err := c.stageUpload(form)
	if err != nil {
		return nil, err
	}
	return c.handleOnce(content, func(c *call) (*reply, error) {
		return c.update(func(w store.Writer) (any, error) { return staged.File, staged.Put(w) })
	})
}

// stageUpload makes the content of the form's file durable. Content tells one upload from another.
func (c *call) stageUpload(form *multipart.Reader) (staged *files.Staged, content []byte, err error) {
	var expiry time.Duration
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, uploadProblem(err)
		}
		switch part.FormName() {
		case "expires_in_seconds":
			text, err := io.ReadAll(io.LimitReader(part, 64))
			if err != nil {
				return nil, nil, uploadProblem(err)
			}
			if expiry, err = resource.ParseExpiry(string(text)); err != nil {
				return nil, nil, err
			}
		case "file":
			if staged != nil {
				return nil, nil, problem.Invalidf("file: only one file can be uploaded in one request")
			}
			if staged, err = c.Files.Stage(c.ctx, uploadName(part), part.Header.Get("Content-Type"), part); err != nil {
				return nil, nil, uploadProblem(err)
			}
		default:
			return nil, nil, problem.Invalidf("%s: unknown field", strconv.Quote(part.FormName()))
		}
	}
	if staged == nil {
		return nil, nil, problem.Invalidf("file: field is required")
	}
	staged.Expire(expiry)
	return staged, []byte(staged.Fingerprint()), nil
}

// uploadName is the name that the client gave, with its path: which part of that counts is for the files to say.
func uploadName(part *multipart.Part) string {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return params["filename"]
}

func uploadProblem(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return problem.New(problem.TooLarge, "The file is larger than %d bytes.", files.MaxSize)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, multipart.ErrMessageTooLarge):
		return problem.Invalidf("The form is malformed or was cut off.")
	}
	return err
}

// filePage has what newer and older clients need to walk the list.
type filePage struct {
	Data    []resource.File `json:"data"`
	Next    *string         `json:"next_page"`
	HasMore bool            `json:"has_more"`
	First   *string         `json:"first_id"`
	Last    *string         `json:"last_id"`
}

func listFiles(c *call) (*reply, error) {
	q := files.Query{Scope: c.query.Get("scope_id"), IDs: c.values("ids")}
	limit, err := c.limit(20, 1000)
	if err != nil {
		return nil, err
	}
	at, err := c.cursor("desc")
	if err != nil {
		return nil, err
	}
	q.After, q.Limit = at.After, limit+1
	if q.After == "" {
		q.After = c.query.Get("after_id")
	}
	if q.IDs != nil {
		if len(q.IDs) > 100 || c.query.Has("page") || c.query.Has("limit") {
			return nil, problem.Invalidf("ids: at most 100 ids are allowed, without page and limit")
		}
		q.Limit = len(q.IDs) + 1
	}
	if q.Scope != "" {
		if err := c.collect(q.Scope); err != nil {
			return nil, err
		}
	}
	found, err := c.Files.List(c.ctx, c.key.Workspace, q)
	if err != nil {
		return nil, err
	}
	list := filePage{Data: []resource.File{}}
	if q.IDs == nil && len(found) > limit {
		found = found[:limit]
		next := cursor{After: found[limit-1].ID, Order: "desc"}.String()
		list.Next, list.HasMore = &next, true
	}
	if n := len(found); n > 0 {
		list.Data, list.First, list.Last = found, &found[0].ID, &found[n-1].ID
	}
	return ok(list)
}

// collect makes files of what a session left, in case its driver could not.
func (c *call) collect(scope string) error {
	if !id.Valid(id.Session, scope) {
		return problem.Invalidf("scope_id: %q is not the id of a session", scope)
	}
	state, err := c.Ledger.State(c.ctx, c.key.Workspace, scope)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && (state.Deleted || state.Status == session.Running):
		return nil
	case err != nil:
		return err
	}
	if err := c.Files.Collect(c.ctx, c.key.Workspace, scope); err != nil {
		c.Log.Warn("the outputs of a session could not be collected", "session", scope, "error", err)
	}
	return nil
}

func getFile(c *call) (*reply, error) {
	f, err := c.Files.Get(c.ctx, c.key.Workspace, c.path("file"))
	if err != nil {
		return nil, err
	}
	return ok(f)
}

func downloadFile(c *call) (*reply, error) {
	f, content, err := c.Files.Download(c.ctx, c.key.Workspace, c.path("file"))
	if err != nil {
		return nil, err
	}
	defer closeBody(content)
	h := c.w.Header()
	h.Set("Content-Type", f.MimeType)
	h.Set("Content-Length", strconv.FormatInt(f.SizeBytes, 10))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.Filename}))
	// A page that an agent made must not act as if it came from this server.
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	c.w.WriteHeader(http.StatusOK)
	// The client has gone if this fails: it can see that the content is shorter than announced.
	_, _ = io.Copy(c.w, content)
	return nil, nil
}

func deleteFile(c *call) (*reply, error) {
	file := c.path("file")
	return c.update(func(w store.Writer) (any, error) {
		return resource.Deleted{ID: file, Type: "file_deleted"}, c.Files.Delete(w, file)
	})
}
