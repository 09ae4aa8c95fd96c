package api

import (
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/store"
)

func (s *Server) environmentRoutes() []route {
	return []route{
		{method: "POST", pattern: "/v1/environments", handle: createEnvironment},
		{method: "GET", pattern: "/v1/environments", handle: listEnvironments},
		{method: "GET", pattern: "/v1/environments/{environment}", handle: getEnvironment},
		{method: "POST", pattern: "/v1/environments/{environment}", handle: updateEnvironment},
		{method: "DELETE", pattern: "/v1/environments/{environment}", handle: deleteEnvironment},
		{method: "POST", pattern: "/v1/environments/{environment}/archive", handle: archiveEnvironment},
	}
}

func createEnvironment(c *call) (*reply, error) {
	e, err := resource.CreateEnvironment(c.body)
	if err != nil {
		return nil, err
	}
	e.ID, e.Type = id.New(id.Environment), "environment"
	e.CreatedAt = resource.At(time.Now())
	e.UpdatedAt = e.CreatedAt
	return c.update(func(w store.Writer) (any, error) { return e, putEnvironment(w, e) })
}

func putEnvironment(w store.Writer, e *resource.Environment) error {
	body, err := json.Marshal(e, json.Deterministic(true))
	if err != nil {
		return err
	}
	d := store.Document{ID: e.ID, Body: body, Created: e.CreatedAt.Time}
	if e.ArchivedAt != nil {
		d.Archived = e.ArchivedAt.Time
	}
	return w.Put(store.Environments, d)
}

func findEnvironment(r store.Reader, environment string) (*resource.Environment, error) {
	if !id.Valid(id.Environment, environment) {
		return nil, problem.Invalidf("Invalid environment ID.")
	}
	d, err := r.Document(store.Environments, environment)
	if errors.Is(err, store.ErrNotFound) {
		return nil, problem.NotFoundf("Environment not found.")
	}
	if err != nil {
		return nil, err
	}
	var e resource.Environment
	return &e, json.Unmarshal(d.Body, &e)
}

func getEnvironment(c *call) (*reply, error) {
	var e *resource.Environment
	err := c.workspace().View(c.ctx, func(r store.Reader) (err error) {
		e, err = findEnvironment(r, c.path("environment"))
		return err
	})
	if err != nil {
		return nil, err
	}
	return ok(e)
}

func listEnvironments(c *call) (*reply, error) {
	archived, err := c.flag("include_archived")
	if err != nil {
		return nil, err
	}
	found, next, err := c.documents(store.Environments, store.DocumentQuery{IncludeArchived: archived}, 20, 100)
	if err != nil {
		return nil, err
	}
	return ok(newPage(bodies(found), next))
}

func bodies(documents []store.Document) []jsontext.Value {
	list := make([]jsontext.Value, 0, len(documents))
	for _, d := range documents {
		list = append(list, d.Body)
	}
	return list
}

func updateEnvironment(c *call) (*reply, error) {
	update, err := resource.DecodeEnvironmentUpdate(c.body)
	if err != nil {
		return nil, err
	}
	return c.update(func(w store.Writer) (any, error) {
		current, err := findEnvironment(w, c.path("environment"))
		if err != nil {
			return nil, err
		}
		next, changed, err := update.Apply(current)
		if err != nil || !changed {
			return next, err
		}
		next.UpdatedAt = resource.At(time.Now())
		return next, putEnvironment(w, next)
	})
}

func archiveEnvironment(c *call) (*reply, error) {
	return c.update(func(w store.Writer) (any, error) {
		current, err := findEnvironment(w, c.path("environment"))
		if err != nil {
			return nil, err
		}
		next, changed := current.Archive(resource.At(time.Now()))
		if !changed {
			return next, nil
		}
		return next, putEnvironment(w, next)
	})
}

// deleteEnvironment removes an environment. Sessions that refer to it stay readable.
func deleteEnvironment(c *call) (*reply, error) {
	return c.update(func(w store.Writer) (any, error) {
		e, err := findEnvironment(w, c.path("environment"))
		if err != nil {
			return nil, err
		}
		return resource.Deleted{ID: e.ID, Type: "environment_deleted"}, w.Delete(store.Environments, e.ID)
	})
}
