package api

import (
	"errors"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/store"
)

func (s *Server) agentRoutes() []route {
	return []route{
		{method: "POST", pattern: "/v1/agents", handle: createAgent},
		{method: "GET", pattern: "/v1/agents", handle: listAgents},
		{method: "GET", pattern: "/v1/agents/{agent}", handle: getAgent},
		{method: "POST", pattern: "/v1/agents/{agent}", handle: updateAgent},
		{method: "POST", pattern: "/v1/agents/{agent}/archive", handle: archiveAgent},
		{method: "GET", pattern: "/v1/agents/{agent}/versions", handle: listAgentVersions},
	}
}

func createAgent(c *call) (*reply, error) {
	agent, err := resource.CreateAgent(c.body, c.defaults())
	if err != nil {
		return nil, err
	}
	agent.ID, agent.Type, agent.Version = id.New(id.Agent), "agent", 1
	agent.CreatedAt = resource.At(time.Now())
	agent.UpdatedAt = agent.CreatedAt
	return c.update(func(w store.Writer) (any, error) { return agent, putAgent(w, agent) })
}

// putAgent writes an agent and, if it is a new version, that version.
func putAgent(w store.Writer, agent *resource.Agent) error {
	body, err := json.Marshal(agent, json.Deterministic(true))
	if err != nil {
		return err
	}
	d := store.Document{ID: agent.ID, Body: body, Created: agent.CreatedAt.Time}
	if agent.ArchivedAt != nil {
		d.Archived = agent.ArchivedAt.Time
	}
	if err := w.Put(store.Agents, d); err != nil {
		return err
	}
	err = w.PutVersion(store.Agents, store.Version{ID: agent.ID, Version: agent.Version, Body: body, Created: agent.UpdatedAt.Time})
	if errors.Is(err, store.ErrConflict) && agent.ArchivedAt != nil {
		return nil // an archive is not a version
	}
	return err
}

func findAgent(r store.Reader, agent string) (*resource.Agent, error) {
	if !id.Valid(id.Agent, agent) {
		return nil, problem.Invalidf("Invalid agent ID.")
	}
	d, err := r.Document(store.Agents, agent)
	if errors.Is(err, store.ErrNotFound) {
		return nil, problem.NotFoundf("Agent not found.")
	}
	if err != nil {
		return nil, err
	}
	return readAgent(d.Body)
}

func readAgent(body []byte) (*resource.Agent, error) {
	var a resource.Agent
	return &a, json.Unmarshal(body, &a)
}

// findAgentVersion returns one version of an agent; 0 is the latest. Every version of an archived agent is archived.
func findAgentVersion(r store.Reader, agent string, version int64, missing *problem.Error) (*resource.Agent, error) {
	latest, err := findAgent(r, agent)
	if err != nil || version == 0 || version == latest.Version {
		return latest, err
	}
	v, err := r.Version(store.Agents, agent, version)
	if errors.Is(err, store.ErrNotFound) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	a, err := readAgent(v.Body)
	a.ArchivedAt = latest.ArchivedAt
	return a, err
}

func getAgent(c *call) (*reply, error) {
	var version int64
	if text := c.query.Get("version"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return nil, problem.Invalidf("version: must be an integer of at least 1")
		}
		version = n
	}
	var agent *resource.Agent
	err := c.workspace().View(c.ctx, func(r store.Reader) (err error) {
		agent, err = findAgentVersion(r, c.path("agent"), version, problem.NotFoundf("Agent version not found."))
		return err
	})
	if err != nil {
		return nil, err
	}
	return ok(agent)
}

func updateAgent(c *call) (*reply, error) {
	update, err := resource.DecodeAgentUpdate(c.body)
	if err != nil {
		return nil, err
	}
	return c.update(func(w store.Writer) (any, error) {
		current, err := findAgent(w, c.path("agent"))
		if err != nil {
			return nil, err
		}
		next, changed, err := update.Apply(current, c.defaults())
		if err != nil || !changed {
			return next, err
		}
		next.Version, next.UpdatedAt = current.Version+1, resource.At(time.Now())
		return next, putAgent(w, next)
	})
}

func archiveAgent(c *call) (*reply, error) {
	return c.update(func(w store.Writer) (any, error) {
		current, err := findAgent(w, c.path("agent"))
		if err != nil {
			return nil, err
		}
		next, changed := current.Archive(resource.At(time.Now()))
		if !changed {
			return next, nil
		}
		return next, putAgent(w, next)
	})
}

// documents lists documents of a kind, newest first, and returns where the next page begins.
func (c *call) documents(kind store.Kind, query store.DocumentQuery, fallback, most int) ([]store.Document, *cursor, error) {
	limit, err := c.limit(fallback, most)
	if err != nil {
		return nil, nil, err
	}
	at, err := c.cursor("desc")
	if err != nil {
		return nil, nil, err
	}
	query.After, query.Limit = at.After, limit+1
	var found []store.Document
	err = c.workspace().View(c.ctx, func(r store.Reader) (err error) {
		found, err = r.Documents(kind, query)
		return err
	})
	if err != nil || len(found) <= limit {
		return found, nil, err
	}
	found = found[:limit]
	return found, &cursor{After: found[limit-1].ID, Order: "desc"}, nil
}

func listAgents(c *call) (*reply, error) {
	archived, err := c.flag("include_archived")
	if err != nil {
		return nil, err
	}
	from, _, to, _, err := c.moments()
	if err != nil {
		return nil, err
	}
	found, next, err := c.documents(store.Agents, store.DocumentQuery{IncludeArchived: archived, CreatedFrom: from, CreatedTo: to}, 20, 100)
	if err != nil {
		return nil, err
	}
	return ok(newPage(bodies(found), next))
}

func listAgentVersions(c *call) (*reply, error) {
	limit, err := c.limit(20, 100)
	if err != nil {
		return nil, err
	}
	at, err := c.cursor("desc")
	if err != nil {
		return nil, err
	}
	var agents []*resource.Agent
	err = c.workspace().View(c.ctx, func(r store.Reader) error {
		latest, err := findAgent(r, c.path("agent"))
		if err != nil {
			return err
		}
		versions, err := r.Versions(store.Agents, latest.ID, at.Seq, limit+1)
		if err != nil {
			return err
		}
		for _, v := range versions {
			a, err := readAgent(v.Body)
			if err != nil {
				return err
			}
			a.ArchivedAt = latest.ArchivedAt
			agents = append(agents, a)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var next *cursor
	if len(agents) > limit {
		agents = agents[:limit]
		next = &cursor{Seq: agents[limit-1].Version, Order: "desc"}
	}
	return ok(newPage(agents, next))
}
