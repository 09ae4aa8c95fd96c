package api

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/session"
)

// threadAgent is the agent in the form that a thread shows: without the roster.
func threadAgent(agent jsontext.Value) (jsontext.Value, error) {
	var snapshot resource.AgentSnapshot
	if err := json.Unmarshal(agent, &snapshot); err != nil {
		return nil, err
	}
	type shown struct {
		Type              string                     `json:"type"`
		ID                string                     `json:"id"`
		Version           int64                      `json:"version"`
		Name              string                     `json:"name"`
		Description       *string                    `json:"description"`
		Model             resource.Model             `json:"model"`
		System            *string                    `json:"system"`
		Tools             []resource.Tool            `json:"tools"`
		MCPServers        []resource.MCPServer       `json:"mcp_servers"`
		Skills            []resource.Skill           `json:"skills"`
		ExecutionIdentity resource.ExecutionIdentity `json:"execution_identity"`
	}
	return json.Marshal(shown{
		"agent", snapshot.ID, snapshot.Version, snapshot.Name, snapshot.Description, snapshot.Model, snapshot.System,
		snapshot.Tools, snapshot.MCPServers, snapshot.Skills, snapshot.ExecutionIdentity,
	}, json.Deterministic(true))
}

func threadView(state *session.State) (session.ThreadView, error) {
	agent, err := threadAgent(state.Config.Agent)
	return session.NewThreadView(state, agent, time.Now()), err
}

// thread is the session of the path, if the thread of the path is one of its threads.
func (c *call) thread() (*session.State, error) {
	state, err := c.state()
	if err != nil {
		return nil, err
	}
	if c.path("thread") != state.Config.Thread {
		return nil, problem.NotFoundf("Thread not found.")
	}
	return state, nil
}

func listThreads(c *call) (*reply, error) {
	state, err := c.state()
	if err != nil {
		return nil, err
	}
	statuses, err := c.statuses()
	if err != nil {
		return nil, err
	}
	if _, err := c.limit(1000, 1000); err != nil {
		return nil, err
	}
	var threads []session.ThreadView
	if slices.Contains(statuses, string(state.Status)) {
		view, err := threadView(state)
		if err != nil {
			return nil, err
		}
		threads = append(threads, view)
	}
	return ok(newPage(threads, nil))
}

func getThread(c *call) (*reply, error) {
	state, err := c.thread()
	if err != nil {
		return nil, err
	}
	view, err := threadView(state)
	if err != nil {
		return nil, err
	}
	return ok(view)
}

func archiveThread(c *call) (*reply, error) {
	if _, err := c.thread(); err != nil {
		return nil, err
	}
	return nil, problem.Invalidf("The primary thread cannot be archived; archive the session instead.")
}
