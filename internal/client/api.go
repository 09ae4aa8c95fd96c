package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// maxPages bounds every walk through a list.
const maxPages = 100

// errTooMany ends a walk that found no end.
var errTooMany = errors.New("the server's list has no end; it was given up after " + strconv.Itoa(maxPages) + " pages")

type page[T any] struct {
	Data     []T    `json:"data"`
	NextPage string `json:"next_page"`
}

// walk gives the entries of a list, page by page, until visit returns false.
func walk[T any](ctx context.Context, c *Client, path string, query url.Values, visit func(T) bool) error {
	for range maxPages {
		var p page[T]
		if err := c.call(ctx, http.MethodGet, path, query, nil, &p); err != nil {
			return err
		}
		for _, entry := range p.Data {
			if !visit(entry) {
				return nil
			}
		}
		if p.NextPage == "" {
			return nil
		}
		query.Set("page", p.NextPage)
	}
	return errTooMany
}

// Agent is the part of an agent that the command needs.
type Agent struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Model struct {
		ID string `json:"id"`
	} `json:"model"`
	Metadata map[string]string `json:"metadata"`
}

// Environment is the part of an environment that the command needs.
type Environment struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Metadata map[string]string `json:"metadata"`
}

// Session is the part of a session that the command needs.
type Session struct {
	ID     string `json:"id"`
	Status string `json:"status"` // idle | running | rescheduling | terminated
	Agent  Agent  `json:"agent"`
	Usage  Usage  `json:"usage"`
}

// File is a file that a session left.
type File struct {
	ID       string `json:"id"`
	Filename string `json:"filename"`
	Size     int64  `json:"size_bytes"`
	// Downloadable tells files that the agent made from those it was given.
	Downloadable bool `json:"downloadable"`
}

// Key is an API key without its secret.
type Key struct {
	ID      string  `json:"id"`
	Name    string  `json:"name"`
	Hint    string  `json:"hint"` // how the key begins
	Created string  `json:"created_at"`
	Revoked *string `json:"revoked_at"`
	// Secret is the key itself, which is only told by CreateKey.
	Secret string `json:"secret,omitzero"`
}

// FindAgent returns the newest agent with this metadata, or nil.
func (c *Client) FindAgent(ctx context.Context, key, value string) (*Agent, error) {
	var found *Agent
	err := walk(ctx, c, "/v1/agents", url.Values{"limit": {"100"}}, func(a Agent) bool {
		if a.Metadata[key] == value {
			found = &a
		}
		return found == nil
	})
	return found, err
}

// Agent returns an agent.
func (c *Client) Agent(ctx context.Context, id string) (*Agent, error) {
	var a Agent
	return &a, c.call(ctx, http.MethodGet, "/v1/agents/"+url.PathEscape(id), nil, nil, &a)
}

// CreateAgent creates an agent from the body of the request.
func (c *Client) CreateAgent(ctx context.Context, body any) (*Agent, error) {
	var a Agent
	return &a, c.call(ctx, http.MethodPost, "/v1/agents", nil, body, &a)
}

// FindEnvironment returns the newest environment with this metadata, or nil.
func (c *Client) FindEnvironment(ctx context.Context, key, value string) (*Environment, error) {
	var found *Environment
	err := walk(ctx, c, "/v1/environments", url.Values{"limit": {"100"}}, func(e Environment) bool {
		if e.Metadata[key] == value {
			found = &e
		}
		return found == nil
	})
	return found, err
}

// CreateEnvironment creates an environment from the body of the request.
func (c *Client) CreateEnvironment(ctx context.Context, body any) (*Environment, error) {
	var e Environment
	return &e, c.call(ctx, http.MethodPost, "/v1/environments", nil, body, &e)
}

// Models returns the ids of the server's models, in its order.
func (c *Client) Models(ctx context.Context) ([]string, error) {
	var models struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := c.call(ctx, http.MethodGet, "/v1/models", url.Values{"limit": {"1000"}}, nil, &models); err != nil {
		return nil, err
	}
	var ids []string
	for _, m := range models.Data {
		ids = append(ids, m.ID)
	}
	return ids, nil
}

// CreateSession creates a session from the body of the request.
func (c *Client) CreateSession(ctx context.Context, body any) (*Session, error) {
	var s Session
	return &s, c.call(ctx, http.MethodPost, "/v1/sessions", nil, body, &s)
}

func sessionPath(id string) string { return "/v1/sessions/" + url.PathEscape(id) }

// Session returns a session as it is at present.
func (c *Client) Session(ctx context.Context, id string) (*Session, error) {
	var s Session
	return &s, c.call(ctx, http.MethodGet, sessionPath(id), nil, nil, &s)
}

// Look is Session without patience, for what is only shown.
func (c *Client) Look(ctx context.Context, id string) (*Session, error) {
	var s Session
	return &s, c.exchange(ctx, http.MethodGet, sessionPath(id), nil, "", nil, &s)
}

// DeleteSession deletes a session with all that belongs to it. It must not be running.
func (c *Client) DeleteSession(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, sessionPath(id), nil, nil, nil)
}

// Send sends events to a session, and returns them as the server took them.
func (c *Client) Send(ctx context.Context, session string, events ...any) ([]Event, error) {
	var taken page[jsontext.Value]
	err := c.call(ctx, http.MethodPost, sessionPath(session)+"/events", nil, map[string]any{"events": events}, &taken)
	if err != nil {
		return nil, err
	}
	return parseEvents(taken.Data)
}

// Events returns the whole log of a session in order. Types, if given, filter it.
func (c *Client) Events(ctx context.Context, session string, types ...string) ([]Event, error) {
	query := url.Values{"limit": {"1000"}, "order": {"asc"}}
	if len(types) > 0 {
		query["types[]"] = types
	}
	var raw []jsontext.Value
	err := walk(ctx, c, sessionPath(session)+"/events", query, func(e jsontext.Value) bool {
		raw = append(raw, e)
		return true
	})
	if err != nil {
		return nil, err
	}
	return parseEvents(raw)
}

// Latest returns the newest event of these types, or nil.
func (c *Client) Latest(ctx context.Context, session string, types ...string) (*Event, error) {
	p, err := c.events(ctx, session, url.Values{"order": {"desc"}, "limit": {"1"}, "types[]": types})
	if err != nil || len(p.Data) == 0 {
		return nil, err
	}
	e, err := ParseEvent(p.Data[0])
	return &e, err
}

// FindEvents looks for events by id, from the newest back, among those of the given types. What is not there is left out.
func (c *Client) FindEvents(ctx context.Context, session string, ids []string, types ...string) (map[string]Event, error) {
	found, wanted := map[string]Event{}, map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	query := url.Values{"order": {"desc"}, "limit": {"100"}, "types[]": types}
	var unreadable error
	err := walk(ctx, c, sessionPath(session)+"/events", query, func(raw jsontext.Value) bool {
		e, err := ParseEvent(raw)
		if err != nil {
			unreadable = err
			return false
		}
		if wanted[e.ID] {
			found[e.ID] = e
		}
		return len(found) < len(wanted)
	})
	return found, errors.Join(err, unreadable)
}

func (c *Client) events(ctx context.Context, session string, query url.Values) (page[jsontext.Value], error) {
	var p page[jsontext.Value]
	err := c.call(ctx, http.MethodGet, sessionPath(session)+"/events", query, nil, &p)
	return p, err
}

func parseEvents(raw []jsontext.Value) ([]Event, error) {
	events := make([]Event, 0, len(raw))
	for _, r := range raw {
		e, err := ParseEvent(r)
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// Outputs returns the files that the agent of a session left, at most a page of them.
func (c *Client) Outputs(ctx context.Context, session string) ([]File, error) {
	var p page[File]
	err := c.call(ctx, http.MethodGet, "/v1/files", url.Values{"scope_id": {session}, "limit": {"100"}}, nil, &p)
	var outputs []File
	for _, f := range p.Data {
		if f.Downloadable {
			outputs = append(outputs, f)
		}
	}
	return outputs, err
}

// Keys returns the API keys of the workspace that the client's key belongs to.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	var keys []Key
	err := walk(ctx, c, "/perdure/v1/keys", url.Values{}, func(k Key) bool {
		keys = append(keys, k)
		return true
	})
	return keys, err
}

// CreateKey makes an API key. Its Secret is told here and never again: the server keeps no answer with a secret, so this
// request is not repeated.
func (c *Client) CreateKey(ctx context.Context, name string) (*Key, error) {
	var k Key
	return &k, c.exchange(ctx, http.MethodPost, "/perdure/v1/keys", nil, "", map[string]string{"name": name}, &k)
}

// RevokeKey ends an API key for good.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, "/perdure/v1/keys/"+url.PathEscape(id)+"/revoke", nil, nil, nil)
}
