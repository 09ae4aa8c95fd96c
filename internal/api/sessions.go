package api

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/files"
	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

func (s *Server) sessionRoutes() []route {
	return []route{
		{method: "POST", pattern: "/v1/sessions", handle: createSession},
		{method: "GET", pattern: "/v1/sessions", handle: listSessions},
		{method: "GET", pattern: "/v1/sessions/{session}", handle: getSession},
		{method: "POST", pattern: "/v1/sessions/{session}", handle: updateSession},
		{method: "DELETE", pattern: "/v1/sessions/{session}", handle: deleteSession},
		{method: "POST", pattern: "/v1/sessions/{session}/archive", handle: archiveSession},
		{method: "GET", pattern: "/v1/sessions/{session}/threads", handle: listThreads},
		{method: "GET", pattern: "/v1/sessions/{session}/threads/{thread}", handle: getThread},
		{method: "POST", pattern: "/v1/sessions/{session}/threads/{thread}/archive", handle: archiveThread},
		{method: "POST", pattern: "/v1/sessions/{session}/resources", handle: addResource},
		{method: "GET", pattern: "/v1/sessions/{session}/resources", handle: listResources},
		{method: "GET", pattern: "/v1/sessions/{session}/resources/{resource}", handle: getResource},
		{method: "POST", pattern: "/v1/sessions/{session}/resources/{resource}", handle: updateResource},
		{method: "DELETE", pattern: "/v1/sessions/{session}/resources/{resource}", handle: deleteResource},
	}
}

func createSession(c *call) (*reply, error) {
	create, err := resource.DecodeSessionCreate(c.body)
	if err != nil {
		return nil, err
	}
	inputs, err := resource.DecodeInitialEvents(create.InitialEvents)
	if err != nil {
		return nil, err
	}
	if err := c.checkFiles(inputs); err != nil {
		return nil, err
	}
	var answer *reply
	step, err := c.Ledger.Create(c.ctx, c.key.Workspace, func(w store.Writer) (*session.Step, error) {
		config, err := c.newConfig(w, create)
		if err != nil {
			return nil, err
		}
		step := session.Create(config, time.Now())
		if len(inputs) > 0 {
			if _, err := step.Accept(noHistory{}, inputs); err != nil {
				return nil, err
			}
		}
		if err := step.Err(); err != nil {
			return nil, err
		}
		if answer, err = ok(session.NewView(step.State, step.State.At)); err != nil {
			return nil, err
		}
		return step, c.remember(w, answer, config.ID)
	})
	if err != nil {
		return nil, err
	}
	c.Failpoint("session-created")
	if len(inputs) > 0 {
		c.Wake(step.State.Config.ID)
	}
	return answer, nil
}

type noHistory struct{}

func (noHistory) CallType(string) (string, bool) { return "", false }

// newConfig resolves what a session is made of, as it is inside the transaction.
func (c *call) newConfig(w store.Writer, create *resource.SessionCreate) (session.Config, error) {
	ref := create.Agent
	missing := problem.NotFoundf("agent.version: %d not found", ref.Version)
	agent, err := findAgentVersion(w, ref.ID, ref.Version, missing)
	if err != nil {
		return session.Config{}, err
	}
	environment, err := findEnvironment(w, create.EnvironmentID)
	if err != nil {
		return session.Config{}, err
	}
	if agent, err = resource.ApplyOverrides(agent, ref.Overrides, c.defaults()); err != nil {
		return session.Config{}, err
	}
	if err := resource.CheckSession(agent, environment, create); err != nil {
		return session.Config{}, err
	}
	snapshot, err := json.Marshal(agent.Snapshot(), json.Deterministic(true))
	if err != nil {
		return session.Config{}, err
	}
	config := session.Config{
		ID: id.New(id.Session), Thread: id.New(id.Thread),
		Agent: snapshot, AgentID: agent.ID, AgentVersion: agent.Version, AgentName: agent.Name,
		Environment: environment.ID, SelfHosted: environment.SelfHosted(),
		Title: create.Title, Metadata: create.Metadata, Resources: []jsontext.Value{}, Vaults: []string{},
		RuntimeRate: c.RuntimeRate,
	}
	if create.Budget != nil {
		if !c.Models.Priced(agent.Model.ID) {
			return session.Config{}, problem.Invalidf("budget: model %s has no list price, so that a budget cannot bound it", agent.Model.ID).WithCode("model_not_budgetable")
		}
		config.BudgetCents = create.Budget.Cents()
	}
	mounted, copies, err := c.Files.Mount(w, config.ID, create.Files)
	if err != nil {
		return session.Config{}, err
	}
	if err := files.PutAll(w, copies); err != nil {
		return session.Config{}, err
	}
	config.Resources, err = appendResources(config.Resources, mounted...)
	return config, err
}

func appendResources(list []jsontext.Value, mounted ...resource.FileResource) ([]jsontext.Value, error) {
	list = slices.Clone(list)
	for _, m := range mounted {
		raw, err := json.Marshal(m, json.Deterministic(true))
		if err != nil {
			return nil, err
		}
		list = append(list, raw)
	}
	return list, nil
}

// checkFiles refuses messages with files that the workspace does not have, and reads rubrics that are files.
func (c *call) checkFiles(inputs []session.Input) error {
	for i, in := range inputs {
		if in.RubricFile != "" {
			content, _, err := c.Files.Open(c.ctx, c.key.Workspace, in.RubricFile)
			if err != nil {
				return err
			}
			inputs[i].Rubric, err = resource.RubricFromFile(fmt.Sprintf("events[%d].rubric", i), content)
			closeBody(content)
			if err != nil {
				return err
			}
		}
		if in.Content == nil {
			continue
		}
		if in.Content == nil { // an interrupt or a confirmation has none, a result may have none
			continue
		}
		named, err := resource.ContentFiles(in.Content)
		if err != nil {
			return err
		}
		for _, file := range named {
			if _, err := c.Files.Get(c.ctx, c.key.Workspace, file.FileID); err != nil {
				if p, isProblem := problem.As(err); isProblem && p.Kind == problem.NotFound {
					return problem.NotFoundf("events[%d].content: file %s not found", i, file.FileID)
				}
				return err
			}
		}
	}
	return nil
}

// sessionID reads the id of the session in the path. Clients of an older form of the API write it session_.
func (c *call) sessionID() string { return c.path("session") }

// state is the session of the path. One that is being erased is not found.
func (c *call) state() (*session.State, error) {
	if !id.Valid(id.Session, c.sessionID()) {
		return nil, problem.Invalidf("Invalid session ID.")
	}
	state, err := c.Ledger.State(c.ctx, c.key.Workspace, c.sessionID())
	if errors.Is(err, store.ErrNotFound) || err == nil && state.Deleted {
		return nil, errNoSession
	}
	return state, err
}

var errNoSession = problem.NotFoundf("Session not found.")

// change extends the log of the session of the path by the step that build makes, and answers what show makes of it. Also
// runs in the same transaction; it may be nil.
func (c *call) change(build func(step *session.Step) error, show func(step *session.Step) (any, error), also func(store.Writer) error) (*reply, *session.Step, error) {
	if _, err := c.state(); err != nil {
		return nil, nil, err
	}
	var answer *reply
	c.Failpoint("change-arrived")
	step, err := c.Ledger.Change(c.ctx, c.key.Workspace, c.sessionID(), func(state *session.State, now time.Time) (*session.Step, error) {
		if state.Deleted {
			return nil, errNoSession
		}
		step := session.NewStep(state, now)
		if err := build(step); err != nil {
			return nil, err
		}
		v, err := show(step)
		if err != nil {
			return nil, err
		}
		answer, err = ok(v)
		return step, err
	}, func(w store.Writer, _ *session.Step) error {
		if also != nil {
			if err := also(w); err != nil {
				return err
			}
		}
		return c.remember(w, answer, c.sessionID())
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, errNoSession
	}
	if err != nil {
		return nil, nil, err
	}
	c.Failpoint("change-appended")
	if len(step.Events) > 0 {
		c.Wake(c.sessionID())
	}
	return answer, step, nil
}

func showSession(step *session.Step) (any, error) {
	return session.NewView(step.State, time.Now()), step.Err()
}

func getSession(c *call) (*reply, error) {
	state, err := c.state()
	if err != nil {
		return nil, err
	}
	return ok(session.NewView(state, time.Now()))
}

func updateSession(c *call) (*reply, error) {
	update, err := resource.DecodeSessionUpdate(c.body)
	if err != nil {
		return nil, err
	}
	answer, _, err := c.change(func(step *session.Step) error {
		change := session.Change{Metadata: map[string]*string{}}
		if update.Title.Given() {
			change.Retitle = true
			if title, given := update.Title.Value(); given {
				change.Title = &title
			}
		}
		metadata, changed, err := update.Metadata.Apply(step.State.Config.Metadata)
		if err != nil {
			return err
		}
		if changed {
			change.Metadata = difference(step.State.Config.Metadata, metadata)
		}
		if update.Budget.Given() {
			change.Rebudget = true
			if budget, given := update.Budget.Value(); given && budget != nil {
				change.BudgetCap = budget.Cents()
			}
		}
		if change.Agent, err = changedAgent(update, step.State.Config); err != nil {
			return err
		}
		return step.Update(change)
	}, showSession, nil)
	return answer, err
}

// difference is the patch that turns one metadata into another.
func difference(from, to map[string]string) map[string]*string {
	patch := map[string]*string{}
	for k := range from {
		if _, kept := to[k]; !kept {
			patch[k] = nil
		}
	}
	for k, v := range to {
		if old, had := from[k]; !had || old != v {
			patch[k] = &v
		}
	}
	return patch
}

// changedAgent is the session's agent after an update; nil if it stays as it is.
func changedAgent(update *resource.SessionUpdate, config *session.Config) (jsontext.Value, error) {
	if !update.ChangesAgent() {
		return nil, nil
	}
	var current resource.AgentSnapshot
	if err := json.Unmarshal(config.Agent, &current); err != nil {
		return nil, err
	}
	next, changed, err := update.ApplyAgent(&current)
	if err != nil || !changed {
		return nil, err
	}
	return json.Marshal(next, json.Deterministic(true))
}

func archiveSession(c *call) (*reply, error) {
	answer, step, err := c.change((*session.Step).Archive, showSession, nil)
	if err != nil {
		return nil, err
	}
	if len(step.Events) > 0 {
		if err := c.StopSandbox(c.ctx, c.sessionID()); err != nil {
			c.Log.Warn("the sandbox of an archived session could not be stopped; it ends by itself", "session", c.sessionID(), "error", err)
		}
	}
	return answer, nil
}

// deleteSession logs the intent and then erases. If that fails, the engine does it.
func deleteSession(c *call) (*reply, error) {
	answer, _, err := c.change((*session.Step).Delete, func(step *session.Step) (any, error) {
		return resource.Deleted{ID: c.sessionID(), Type: "session_deleted"}, step.Err()
	}, nil)
	if err != nil {
		return nil, err
	}
	if err := c.Erase(c.ctx, c.key.Workspace, c.sessionID()); err != nil {
		c.Log.Warn("a deleted session could not be erased at once; it is tried again", "session", c.sessionID(), "error", err)
	}
	return answer, nil
}

// sessionPage is the one list of the API that can be walked both ways.
type sessionPage struct {
	Data []session.View `json:"data"`
	Next *string        `json:"next_page"`
	Prev *string        `json:"prev_page"`
}

func listSessions(c *call) (*reply, error) {
	query, at, err := c.sessionQuery()
	if err != nil {
		return nil, err
	}
	limit := query.Limit
	query.Limit++
	var rows []store.Session
	err = c.workspace().View(c.ctx, func(r store.Reader) (err error) {
		rows, err = r.Sessions(query)
		return err
	})
	if err != nil {
		return nil, err
	}
	more := len(rows) > limit
	rows = rows[:min(len(rows), limit)]
	if at.Back {
		slices.Reverse(rows)
	}
	list := sessionPage{Data: []session.View{}}
	for _, row := range rows {
		state, err := c.Ledger.RowState(c.ctx, c.key.Workspace, row)
		if errors.Is(err, store.ErrNotFound) {
			continue // it was deleted after the page was read
		}
		if err != nil {
			return nil, err
		}
		list.Data = append(list.Data, session.NewView(state, time.Now()))
	}
	if len(rows) > 0 {
		first, last := rows[0].ID, rows[len(rows)-1].ID
		if more && !at.Back || at.Back {
			next := cursor{After: last, Order: at.Order}.String()
			list.Next = &next
		}
		if more && at.Back || !at.Back && at.After != "" {
			prev := cursor{After: first, Order: at.Order, Back: true}.String()
			list.Prev = &prev
		}
	}
	return ok(list)
}

func (c *call) sessionQuery() (q store.SessionQuery, at cursor, err error) {
	order, err := c.order("desc")
	if err != nil {
		return q, at, err
	}
	if at, err = c.cursor(order); err != nil {
		return q, at, err
	}
	q = store.SessionQuery{
		After: at.After, Ascending: (order == "asc") != at.Back,
		AgentID: c.query.Get("agent_id"), Environment: c.query.Get("environment_id"), Deployment: c.query.Get("deployment_id"),
	}
	if q.Limit, err = c.limit(20, 100); err != nil {
		return q, at, err
	}
	if text := c.query.Get("agent_version"); text != "" {
		if q.AgentID == "" {
			return q, at, problem.Invalidf("agent_version: may be given only with agent_id")
		}
		if q.AgentVersion, err = strconv.ParseInt(text, 10, 64); err != nil || q.AgentVersion < 1 {
			return q, at, problem.Invalidf("agent_version: must be an integer of at least 1")
		}
	}
	if c.query.Get("memory_store_id") != "" {
		// No session of this server has a memory store.
		q.AgentID = "none"
	}
	if q.IncludeArchived, err = c.flag("include_archived"); err != nil {
		return q, at, err
	}
	if q.Statuses, err = c.statuses(); err != nil {
		return q, at, err
	}
	q.CreatedFrom, q.CreatedAfter, q.CreatedTo, q.CreatedBefore, err = c.moments()
	return q, at, err
}
