package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/store"
)

// call is one request to a route, by a client that is known.
type call struct {
	*Server
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context
	request string // the id of the request
	key     store.Key
	query   url.Values
	body    []byte
	// once is set if the client wants the same answer to the same request.
	once *idempotency
}

type idempotency struct {
	key         string
	fingerprint string
}

// workspace is the only data that the call can reach.
func (c *call) workspace() store.Workspace { return c.Store.In(c.key.Workspace) }

func (c *call) path(name string) string { return c.r.PathValue(name) }

// reply is an answer to be sent. A handler that has answered by itself returns nil.
type reply struct {
	status int
	body   []byte
}

// handler answers a call.
type handler func(c *call) (*reply, error)

// route is one line of the API.
type route struct {
	method  string
	pattern string
	handle  handler
	// streams says that the handler reads the body or writes the answer by itself.
	streams bool
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, list := range [][]route{s.agentRoutes(), s.environmentRoutes(), s.sessionRoutes(), s.eventRoutes(), s.fileRoutes(), s.ownRoutes()} {
		for _, r := range list {
			mux.Handle(r.method+" "+r.pattern, s.serve(r))
			methods[r.pattern] = append(methods[r.pattern], r.method)
		}
	}
	for pattern, allowed := range methods {
		mux.Handle(pattern, s.refuse(func(w http.ResponseWriter) error {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			return problem.New(problem.Method, "Method Not Allowed")
		}))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	notFound := s.refuse(func(http.ResponseWriter) error { return problem.NotFoundf("Not found") })
	mux.Handle("/", notFound)
	return clean(mux, notFound)
}

// clean keeps the mux from redirecting paths that it would write in another way: there is nothing at such a path.
func clean(next, notFound http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Clean(r.URL.Path) != r.URL.Path {
			notFound.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if err := s.Health(r.Context()); err != nil {
		s.Log.Warn("the server is not ready", "error", err)
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

func (s *Server) refuse(why func(http.ResponseWriter) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := id.New(id.Request)
		w.Header().Set("Request-Id", request)
		s.sendError(w, r, request, why(w))
	})
}

// serve wraps a route: it names the request, finds the client, reads the body, and sends what the handler answers.
func (s *Server) serve(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Server: s, w: w, r: r, ctx: r.Context(), request: id.New(id.Request)}
		w.Header().Set("Request-Id", c.request)
		defer func() {
			if p := recover(); p != nil {
				if err, isError := p.(error); isError && errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				s.sendError(w, r, c.request, fmt.Errorf("api: %s %s panicked: %v\n%s", r.Method, route.pattern, p, debug.Stack()))
			}
		}()
		answer, err := c.run(route)
		switch {
		case err != nil:
			s.sendError(w, r, c.request, err)
		case answer != nil:
			send(w, answer)
		}
	})
}

func (c *call) run(route route) (*reply, error) {
	if err := c.authenticate(); err != nil {
		return nil, err
	}
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, problem.Invalidf("The query string is malformed: %v", err)
	}
	c.query = query
	if key := c.r.Header.Get("Idempotency-Key"); key != "" && c.r.Method == http.MethodPost {
		if len(key) > 255 {
			return nil, problem.Invalidf("Idempotency-Key: must be at most 255 characters")
		}
		c.once = &idempotency{key: key}
	}
	if route.streams {
		return route.handle(c)
	}
	if err := c.readBody(); err != nil {
		return nil, err
	}
	return c.handleOnce(c.body, route.handle)
}

func (c *call) readBody() error {
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return problem.New(problem.TooLarge, "The request is larger than %d bytes.", maxBody)
	case err != nil:
		return problem.Invalidf("The request body could not be read.")
	}
	c.body = body
	return nil
}

// handleOnce runs the handler, unless the same request was answered before: then it gives that answer. Content is what,
// with the path, tells one request from another.
func (c *call) handleOnce(content []byte, handle handler) (*reply, error) {
	if c.once == nil {
		return handle(c)
	}
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s\n%s\n", c.r.URL.Path, c.key.ID)
	_, _ = sum.Write(content)
	c.once.fingerprint = hex.EncodeToString(sum.Sum(nil))
	for range 3 {
		if answer, err := c.recall(); answer != nil || err != nil {
			return answer, err
		}
		answer, err := handle(c)
		if !errors.Is(err, errAnsweredMeanwhile) {
			return answer, err
		}
	}
	return nil, problem.New(problem.Conflict, "The same Idempotency-Key is in use by another request; try again.")
}

// errAnsweredMeanwhile says that another request with the same Idempotency-Key was faster.
var errAnsweredMeanwhile = errors.New("api: answered by another request with the same key")

func (c *call) recall() (*reply, error) {
	var known store.Remembered
	err := c.workspace().View(c.ctx, func(r store.Reader) (err error) {
		known, err = r.Recall(c.once.key, c.once.fingerprint)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case errors.Is(err, store.ErrKeyReused):
		return nil, problem.Conflictf("Idempotency-Key: this key was used for a different request; use a new key for each request.")
	case err != nil:
		return nil, err
	}
	c.w.Header().Set("Idempotent-Replayed", "true")
	return &reply{status: known.Status, body: known.Body}, nil
}

// remember stores the answer in the transaction of its effect, if the client asked for that. Session is the session that
// the answer is about, "" if none.
func (c *call) remember(w store.Writer, answer *reply, session string) error {
	if c.once == nil {
		return nil
	}
	err := w.Remember(c.once.key, c.once.fingerprint, store.Remembered{
		Status: answer.status, Body: answer.body, At: time.Now(), Session: session,
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrKeyReused) {
		return errAnsweredMeanwhile
	}
	return err
}

// update runs write in one transaction and answers what it returns.
func (c *call) update(write func(w store.Writer) (any, error)) (*reply, error) {
	var answer *reply
	err := c.workspace().Update(c.ctx, func(w store.Writer) error {
		v, err := write(w)
		if err != nil {
			return err
		}
		if answer, err = ok(v); err != nil {
			return err
		}
		return c.remember(w, answer, "")
	})
	return answer, err
}

// ok is the answer that shows v.
func ok(v any) (*reply, error) {
	body, err := json.Marshal(v, json.Deterministic(true), jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, fmt.Errorf("api: write an answer: %w", err)
	}
	return &reply{status: http.StatusOK, body: body}, nil
}

func send(w http.ResponseWriter, answer *reply) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answer.status)
	// The client has gone if this fails; it asks again, or does not care.
	_, _ = io.Copy(w, bytes.NewReader(answer.body))
}

// authenticate finds the key that the request carries: as a bearer token, or in X-Api-Key as older clients send it.
func (c *call) authenticate() error {
	secret := c.r.Header.Get("X-Api-Key")
	if token, isBearer := strings.CutPrefix(c.r.Header.Get("Authorization"), "Bearer "); isBearer {
		secret = token
	}
	refused := problem.New(problem.Unauthorized, "Authentication failed")
	if secret == "" {
		return refused
	}
	key, err := c.Store.KeyByHash(c.ctx, HashSecret(secret))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return refused
	case err != nil:
		return err
	case !key.Revoked.IsZero():
		return refused
	}
	c.key = key
	// A server is one organization; its workspaces are its tenants.
	c.w.Header().Set("Anthropic-Organization-Id", organization)
	c.w.Header().Set("Anthropic-Workspace-Id", key.Workspace)
	return nil
}

// organization is what clients are told as the organization: there is none.
const organization = "00000000-0000-0000-0000-000000000000"

// HashSecret is what is stored of the secret of an API key. Secrets are random and long, so a plain hash does not give
// them away.
func HashSecret(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }
