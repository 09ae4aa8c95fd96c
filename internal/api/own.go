package api

import (
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/store"
)

// ownRoutes are the models, and what the wire does not have.
func (s *Server) ownRoutes() []route {
	return []route{
		{method: "GET", pattern: "/v1/models", handle: listModels},
		{method: "GET", pattern: "/v1/models/{model}", handle: getModel},
		{method: "GET", pattern: "/perdure/v1/keys", handle: listKeys},
		{method: "POST", pattern: "/perdure/v1/keys", handle: createKey},
		{method: "POST", pattern: "/perdure/v1/keys/{key}/revoke", handle: revokeKey},
	}
}

type modelView struct {
	ID          string        `json:"id"`
	Type        string        `json:"type"`
	DisplayName string        `json:"display_name"`
	CreatedAt   resource.Time `json:"created_at"`
}

func viewModel(m model.Info) modelView {
	return modelView{ID: m.ID, Type: "model", DisplayName: m.DisplayName, CreatedAt: resource.At(m.CreatedAt)}
}

// modelPage is of the older form of lists.
type modelPage struct {
	Data    []modelView `json:"data"`
	HasMore bool        `json:"has_more"`
	First   *string     `json:"first_id"`
	Last    *string     `json:"last_id"`
}

func listModels(c *call) (*reply, error) {
	limit, err := c.limit(20, 1000)
	if err != nil {
		return nil, err
	}
	all := c.Models.List(c.ctx)
	if after := c.query.Get("after_id"); after != "" {
		for i, m := range all {
			if m.ID == after {
				all = all[i+1:]
				break
			}
		}
	}
	list := modelPage{Data: []modelView{}, HasMore: len(all) > limit}
	for _, m := range all[:min(len(all), limit)] {
		list.Data = append(list.Data, viewModel(m))
	}
	if n := len(list.Data); n > 0 {
		list.First, list.Last = &list.Data[0].ID, &list.Data[n-1].ID
	}
	return ok(list)
}

func getModel(c *call) (*reply, error) {
	for _, m := range c.Models.List(c.ctx) {
		if m.ID == c.path("model") {
			return ok(viewModel(m))
		}
	}
	return nil, problem.NotFoundf("model: %s", c.path("model"))
}

type keyView struct {
	ID        string         `json:"id"`
	Type      string         `json:"type"`
	Name      string         `json:"name"`
	Hint      string         `json:"hint"`
	CreatedAt resource.Time  `json:"created_at"`
	RevokedAt *resource.Time `json:"revoked_at"`
	// Secret is shown once, to whoever makes the key.
	Secret string `json:"secret,omitzero"`
}

func viewKey(k store.Key) keyView {
	v := keyView{ID: k.ID, Type: "api_key", Name: k.Name, Hint: k.Hint, CreatedAt: resource.At(k.Created)}
	if !k.Revoked.IsZero() {
		revoked := resource.At(k.Revoked)
		v.RevokedAt = &revoked
	}
	return v
}

// workspaceKeys are the keys that reach the same data as the caller's.
func (c *call) workspaceKeys() ([]store.Key, error) {
	keys, err := c.Store.Keys(c.ctx)
	if err != nil {
		return nil, err
	}
	var mine []store.Key
	for _, k := range keys {
		if k.Workspace == c.key.Workspace {
			mine = append(mine, k)
		}
	}
	return mine, nil
}

func listKeys(c *call) (*reply, error) {
	keys, err := c.workspaceKeys()
	if err != nil {
		return nil, err
	}
	views := make([]keyView, 0, len(keys))
	for _, k := range keys {
		views = append(views, viewKey(k))
	}
	return ok(newPage(views, nil))
}

// createKey answers with a secret, which is stored nowhere: it cannot be asked for again with an Idempotency-Key.
func createKey(c *call) (*reply, error) {
	if c.once != nil {
		return nil, problem.Invalidf("Idempotency-Key: not supported for keys, because their secret is not kept")
	}
	var body struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(c.body, &body, json.RejectUnknownMembers(true)); err != nil {
		return nil, problem.Invalidf(`The body must be {"name": "…"}.`)
	}
	if name := strings.TrimSpace(body.Name); name == "" || len(name) > 256 {
		return nil, problem.Invalidf("name: must have 1 to 256 characters")
	}
	secret, key, err := c.Keys.Create(c.ctx, c.key.Workspace, body.Name)
	if err != nil {
		return nil, err
	}
	view := viewKey(key)
	view.Secret = secret
	return ok(view)
}

func revokeKey(c *call) (*reply, error) {
	keys, err := c.workspaceKeys()
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if k.ID != c.path("key") {
			continue
		}
		if k.Revoked.IsZero() {
			k.Revoked = time.Now()
			if err := c.Store.RevokeKey(c.ctx, k.ID, k.Revoked); err != nil && !errors.Is(err, store.ErrNotFound) {
				return nil, err
			}
		}
		return ok(viewKey(k))
	}
	return nil, problem.NotFoundf("Key not found.")
}
