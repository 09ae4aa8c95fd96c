package goclient

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"
)

var clock = regexp.MustCompile(`"stats":\{[^}]*\}`)

func TestSessionCreate(t *testing.T) {
	w := begin(t)
	agent, env := w.agent("greet", toolset), w.environment()
	file := w.upload("data.csv", "a,b\n")
	made := w.sessionOf(agent.ID, anthropic.BetaSessionNewParams{
		EnvironmentID: env.ID,
		Title:         anthropic.String("A title"),
		Metadata:      map[string]string{"order": "1234"},
		Budget:        anthropic.BetaManagedAgentsBudgetLimitParam{MaxListCost: anthropic.BetaMonetaryAmountParam{Amount: "2500", Currency: "USD"}},
		Resources: []anthropic.BetaSessionNewParamsResourceUnion{
			{OfFile: &anthropic.BetaManagedAgentsFileResourceParams{FileID: file.ID, MountPath: anthropic.String("/data.csv")}},
		},
	})
	same(w, "type", string(made.Type), "session")
	same(w, "status", string(made.Status), "idle")
	same(w, "title", made.Title, "A title")
	same(w, "metadata", made.Metadata["order"], "1234")
	same(w, "budget", made.Budget.MaxListCost.Amount, "2500")
	same(w, "agent", made.Agent.ID, agent.ID)
	same(w, "agent version", made.Agent.Version, 1)
	same(w, "environment", made.EnvironmentID, env.ID)
	same(w, "resources", len(made.Resources), 1)
	mounted := made.Resources[0].AsFile()
	same(w, "mount path", mounted.MountPath, "/mnt/session/uploads/data.csv")
	if mounted.FileID == file.ID || mounted.ID == "" {
		t.Errorf("the session's file must be a copy with an id of its own: %s", mounted.RawJSON())
	}
	same(w, "list cost", made.Usage.ListCost.Amount, "0")
	// The clock of a session runs, so its statistics are another at each read.
	same(w, "retrieved", clock.ReplaceAllString(w.retrieve(made.ID).RawJSON(), ""), clock.ReplaceAllString(made.RawJSON(), ""))

	plain := w.sessionOf(agent.ID, anthropic.BetaSessionNewParams{})
	raw := plain.RawJSON()
	for _, part := range []string{`"title":null`, `"budget":null`, `"archived_at":null`, `"resources":[]`, `"vault_ids":[]`, `"outcome_evaluations":[]`, `"metadata":{}`} {
		if !strings.Contains(raw, part) {
			t.Errorf("want %s in %s", part, raw)
		}
	}
	same(w, "events of a fresh session", len(w.log(plain.ID, anthropic.BetaSessionEventListParams{})), 0)
}

func TestSessionAgentForms(t *testing.T) {
	w := begin(t)
	agent, env := w.agent("greet", toolset), w.environment()
	must[*anthropic.BetaManagedAgentsAgent](w)(w.client.Beta.Agents.Update(w.ctx, agent.ID, anthropic.BetaAgentUpdateParams{System: anthropic.String("second")}))
	create := func(form anthropic.BetaSessionNewParamsAgentUnion) (*anthropic.BetaManagedAgentsSession, error) {
		return w.client.Beta.Sessions.New(w.ctx, anthropic.BetaSessionNewParams{Agent: form, EnvironmentID: env.ID})
	}
	latest := must[*anthropic.BetaManagedAgentsSession](w)(create(anthropic.BetaSessionNewParamsAgentUnion{
		OfBetaManagedAgentsAgents: &anthropic.BetaManagedAgentsAgentParams{ID: agent.ID, Type: "agent"}}))
	same(w, "latest version", latest.Agent.Version, 2)
	pinned := must[*anthropic.BetaManagedAgentsSession](w)(create(anthropic.BetaSessionNewParamsAgentUnion{
		OfBetaManagedAgentsAgents: &anthropic.BetaManagedAgentsAgentParams{ID: agent.ID, Type: "agent", Version: anthropic.Int(1)}}))
	same(w, "pinned version", pinned.Agent.Version, 1)
	same(w, "pinned system", pinned.Agent.System, "")
	overridden := must[*anthropic.BetaManagedAgentsSession](w)(create(anthropic.BetaSessionNewParamsAgentUnion{
		OfBetaManagedAgentsAgentWithOverridess: &anthropic.BetaManagedAgentsAgentWithOverridesParams{
			ID: agent.ID, System: param.Null[string](), Model: anthropic.BetaManagedAgentsModelConfigParams{ID: "scripted/weather"},
			Tools: []anthropic.BetaManagedAgentsAgentWithOverridesParamsToolUnion{{OfCustom: weatherTool.OfCustom}},
		}}))
	same(w, "id of the base", overridden.Agent.ID, agent.ID)
	same(w, "version of the base", overridden.Agent.Version, 2)
	same(w, "overridden system", overridden.Agent.System, "")
	same(w, "overridden model", overridden.Agent.Model.ID, "scripted/weather")
	same(w, "overridden tools", len(overridden.Agent.Tools), 1)
	same(w, "overridden tool", overridden.Agent.Tools[0].Type, "custom")
	_, err := create(anthropic.BetaSessionNewParamsAgentUnion{
		OfBetaManagedAgentsAgents: &anthropic.BetaManagedAgentsAgentParams{ID: agent.ID, Type: "agent", Version: anthropic.Int(999)}})
	w.refused(err, 404, "not_found_error", "999")
}

func TestSessionInitialEvents(t *testing.T) {
	w := begin(t)
	first := func(words string) anthropic.BetaSessionNewParamsInitialEventUnion {
		return anthropic.BetaSessionNewParamsInitialEventUnion{OfUserMessage: message(words).OfUserMessage}
	}
	made := w.sessionOf(w.agent("greet").ID, anthropic.BetaSessionNewParams{
		InitialEvents: []anthropic.BetaSessionNewParamsInitialEventUnion{first("one"), first("two")},
	})
	same(w, "status", string(made.Status), "running")
	if strings.Contains(made.RawJSON(), "initial_events") {
		t.Errorf("initial_events are echoed: %s", made.RawJSON())
	}
	w.settle(made.ID)
	events := w.log(made.ID, anthropic.BetaSessionEventListParams{})
	var words []string
	for _, e := range events {
		if e.Type == "user.message" {
			words = append(words, e.AsUserMessage().Content[0].Text)
		}
	}
	equal(w, "messages", words, []string{"one", "two"})
	same(w, "first event", events[0].Type, "session.status_running")
	same(w, "status at the end", string(w.retrieve(made.ID).Status), "idle")
}

// settle waits until a session is idle: it listens, and then looks, so that the end of the turn cannot be missed.
func (w *world) settle(session string) {
	w.Helper()
	stream := w.stream(session, anthropic.BetaSessionEventStreamParams{})
	defer stream.Close()
	if w.retrieve(session).Status == "idle" {
		return
	}
	w.until(stream, "session.status_idle")
}

func TestSessionUpdate(t *testing.T) {
	w := begin(t)
	made := w.session("greet", toolset)
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	update := func(params anthropic.BetaSessionUpdateParams) *anthropic.BetaManagedAgentsSession {
		t.Helper()
		return must[*anthropic.BetaManagedAgentsSession](w)(w.client.Beta.Sessions.Update(w.ctx, made.ID, params))
	}
	updated := update(anthropic.BetaSessionUpdateParams{Title: anthropic.String("Renamed"), Metadata: map[string]string{"a": "1"}})
	same(w, "title", updated.Title, "Renamed")
	same(w, "metadata", updated.Metadata["a"], "1")
	update(anthropic.BetaSessionUpdateParams{Title: anthropic.String("Renamed")}) // changes nothing
	updated = update(anthropic.BetaSessionUpdateParams{Agent: anthropic.BetaManagedAgentsSessionAgentUpdateParam{
		Tools: []anthropic.BetaManagedAgentsSessionAgentUpdateToolUnionParam{{OfCustom: weatherTool.OfCustom}},
	}})
	same(w, "tools", len(updated.Agent.Tools), 1)
	same(w, "tool", updated.Agent.Tools[0].Type, "custom")
	w.send(made.ID, message("hello"))
	events := only(w.until(stream, "session.status_idle"), "session.updated")
	if len(events) != 2 {
		t.Fatalf("%d events tell of updates, want 2", len(events))
	}
	same(w, "title of the event", events[0].Title, "Renamed")
	same(w, "first event has an agent", events[0].JSON.Agent.Valid(), false)
	same(w, "second event has a title", events[1].JSON.Title.Valid(), false)
	same(w, "second event's tools", len(events[1].Agent.Tools), 1)

	_, err := w.client.Beta.Sessions.Update(w.ctx, made.ID, anthropic.BetaSessionUpdateParams{VaultIDs: []string{"vlt_011CZkZAtmR3yMPDzynEDxu7"}})
	w.refused(err, 400, "invalid_request_error", "")
	_, err = w.client.Beta.Sessions.Update(w.ctx, made.ID, anthropic.BetaSessionUpdateParams{
		Budget: anthropic.BetaManagedAgentsBudgetLimitParam{MaxListCost: anthropic.BetaMonetaryAmountParam{Amount: "100", Currency: "USD"}},
	})
	w.refused(err, 400, "invalid_request_error", "")
}

func TestSessionList(t *testing.T) {
	w := begin(t)
	agent := w.agent("greet")
	var made []string
	for range 5 {
		made = append(made, w.sessionOf(agent.ID, anthropic.BetaSessionNewParams{}).ID)
	}
	middle := w.retrieve(made[2]).CreatedAt
	collect := func(params anthropic.BetaSessionListParams) []string {
		t.Helper()
		params.AgentID = anthropic.String(agent.ID)
		var list []string
		pager := w.client.Beta.Sessions.ListAutoPaging(w.ctx, params)
		for session := range pager.All() {
			list = append(list, session.ID)
		}
		if pager.Err() != nil {
			t.Fatal(pager.Err())
		}
		return list
	}
	newest := slices.Clone(made)
	slices.Reverse(newest)
	equal(w, "newest first", collect(anthropic.BetaSessionListParams{Limit: anthropic.Int(2)}), newest)
	asc := anthropic.BetaSessionListParamsOrderAsc
	equal(w, "oldest first", collect(anthropic.BetaSessionListParams{Order: asc, Limit: anthropic.Int(2)}), made)
	equal(w, "gt", collect(anthropic.BetaSessionListParams{Order: asc, CreatedAtGt: anthropic.Time(middle)}), made[3:])
	equal(w, "gte", collect(anthropic.BetaSessionListParams{Order: asc, CreatedAtGte: anthropic.Time(middle)}), made[2:])
	equal(w, "lt", collect(anthropic.BetaSessionListParams{Order: asc, CreatedAtLt: anthropic.Time(middle)}), made[:2])
	equal(w, "lte", collect(anthropic.BetaSessionListParams{Order: asc, CreatedAtLte: anthropic.Time(middle)}), made[:3])
	equal(w, "version 1", collect(anthropic.BetaSessionListParams{Order: asc, AgentVersion: anthropic.Int(1)}), made)
	equal(w, "version 2", collect(anthropic.BetaSessionListParams{AgentVersion: anthropic.Int(2)}), nil)
	equal(w, "idle", collect(anthropic.BetaSessionListParams{Order: asc, Statuses: []string{"idle", "running"}}), made)
	equal(w, "terminated", collect(anthropic.BetaSessionListParams{Statuses: []string{"terminated"}}), nil)
	equal(w, "deployment", collect(anthropic.BetaSessionListParams{DeploymentID: anthropic.String("depl_011CZkZAtmR3yMPDzynEDxu7")}), nil)
	equal(w, "memory store", collect(anthropic.BetaSessionListParams{MemoryStoreID: anthropic.String("memstore_011CZkZAtmR3yMPDzynEDxu7")}), nil)

	// Both cursors.
	first, err := w.client.Beta.Sessions.List(w.ctx, anthropic.BetaSessionListParams{AgentID: anthropic.String(agent.ID), Limit: anthropic.Int(2)})
	if err != nil {
		t.Fatal(err)
	}
	same(w, "prev_page of the first page", first.PrevPage, "")
	second, err := first.GetNextPage()
	if err != nil {
		t.Fatal(err)
	}
	back, err := w.client.Beta.Sessions.List(w.ctx, anthropic.BetaSessionListParams{
		AgentID: anthropic.String(agent.ID), Limit: anthropic.Int(2), Page: anthropic.String(second.PrevPage)})
	if err != nil {
		t.Fatal(err)
	}
	same(w, "entries before the second page", len(back.Data), 2)
	same(w, "first of them", back.Data[0].ID, newest[0])

	archived := must[*anthropic.BetaManagedAgentsSession](w)(w.client.Beta.Sessions.Archive(w.ctx, made[0], anthropic.BetaSessionArchiveParams{}))
	same(w, "status", string(archived.Status), "terminated")
	equal(w, "without archived", collect(anthropic.BetaSessionListParams{Order: asc}), made[1:])
	equal(w, "with archived", collect(anthropic.BetaSessionListParams{Order: asc, IncludeArchived: anthropic.Bool(true)}), made)
}

func TestSessionArchive(t *testing.T) {
	w := begin(t)
	made := w.session("greet")
	w.converse(made.ID, message("hello"))
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	archived := must[*anthropic.BetaManagedAgentsSession](w)(w.client.Beta.Sessions.Archive(w.ctx, made.ID, anthropic.BetaSessionArchiveParams{}))
	same(w, "status", string(archived.Status), "terminated")
	if archived.ArchivedAt.IsZero() {
		t.Error("archived_at is not set")
	}
	w.until(stream, "session.status_terminated")
	if err := w.trySend(made.ID, message("too late")); err == nil {
		t.Error("an archived session took an event")
	}
	if n := len(w.log(made.ID, anthropic.BetaSessionEventListParams{})); n < 9 {
		t.Errorf("the history has %d events", n)
	}
	must[*anthropic.BetaManagedAgentsDeletedSession](w)(w.client.Beta.Sessions.Delete(w.ctx, made.ID, anthropic.BetaSessionDeleteParams{}))
}

func TestSessionDelete(t *testing.T) {
	w := begin(t)
	made := w.session("greet")
	w.converse(made.ID, message("hello"))
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	deleted := must[*anthropic.BetaManagedAgentsDeletedSession](w)(w.client.Beta.Sessions.Delete(w.ctx, made.ID, anthropic.BetaSessionDeleteParams{}))
	same(w, "id", deleted.ID, made.ID)
	same(w, "type", string(deleted.Type), "session_deleted")
	w.until(stream, "session.deleted")
	if stream.Next() || stream.Err() != nil {
		t.Errorf("the stream goes on after session.deleted, or broke: %v", stream.Err())
	}
	_, err := w.client.Beta.Sessions.Get(w.ctx, made.ID, anthropic.BetaSessionGetParams{})
	w.refused(err, 404, "not_found_error", "")
}

// A running session can be neither archived nor deleted; the refusal changes nothing.
func TestRunningSessionIsKept(t *testing.T) {
	w := begin(t)
	made := w.session("endless")
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	w.send(made.ID, message("go"))
	w.until(stream, "span.model_request_start")
	_, err := w.client.Beta.Sessions.Archive(w.ctx, made.ID, anthropic.BetaSessionArchiveParams{})
	w.refused(err, 400, "invalid_request_error", `cannot be archived while its status is "running"`)
	_, err = w.client.Beta.Sessions.Delete(w.ctx, made.ID, anthropic.BetaSessionDeleteParams{})
	w.refused(err, 400, "invalid_request_error", "Cannot delete session while it is running")
	_, err = w.client.Beta.Sessions.Update(w.ctx, made.ID, anthropic.BetaSessionUpdateParams{Agent: anthropic.BetaManagedAgentsSessionAgentUpdateParam{
		Tools: []anthropic.BetaManagedAgentsSessionAgentUpdateToolUnionParam{{OfCustom: weatherTool.OfCustom}}}})
	w.refused(err, 400, "invalid_request_error", "")
	same(w, "status", string(w.retrieve(made.ID).Status), "running")
	w.send(made.ID, interrupt)
	w.until(stream, "session.status_idle")
	must[*anthropic.BetaManagedAgentsDeletedSession](w)(w.client.Beta.Sessions.Delete(w.ctx, made.ID, anthropic.BetaSessionDeleteParams{}))
}
