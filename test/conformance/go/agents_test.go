package goclient

import (
	"fmt"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"
)

func TestAgentWithEveryKindOfTool(t *testing.T) {
	w := begin(t)
	made := must[*anthropic.BetaManagedAgentsAgent](w)(w.client.Beta.Agents.New(w.ctx, anthropic.BetaAgentNewParams{
		Name:        "Every tool",
		Description: anthropic.String("Has all kinds of tools."),
		System:      anthropic.String("Be brief."),
		Model: anthropic.BetaManagedAgentsModelConfigParams{
			ID:     "scripted/greet",
			Effort: anthropic.BetaManagedAgentsModelConfigParamsEffortUnion{OfBetaManagedAgentsModelConfigsEffortBetaManagedAgentsEffortLevel: anthropic.String("low")},
			Speed:  anthropic.BetaManagedAgentsModelConfigParamsSpeedStandard,
		},
		Metadata: map[string]string{"team": "blue"},
		MCPServers: []anthropic.BetaManagedAgentsURLMCPServerParams{{
			Name: "docs", URL: "https://example.com/mcp",
		}},
		Tools: []agentTool{
			{OfAgentToolset20260401: &anthropic.BetaManagedAgentsAgentToolset20260401Params{
				DefaultConfig: anthropic.BetaManagedAgentsAgentToolsetDefaultConfigParams{Enabled: anthropic.Bool(true)},
				Configs: []anthropic.BetaManagedAgentsAgentToolConfigParamsUnion{
					{OfBash: &anthropic.BetaManagedAgentsBashToolConfigParams{
						PermissionPolicy: anthropic.BetaManagedAgentsBashToolConfigParamsPermissionPolicyUnion{
							OfAlwaysAsk: &anthropic.BetaManagedAgentsAlwaysAskPolicyParam{},
						},
					}},
					{OfWebFetch: &anthropic.BetaManagedAgentsWebFetchToolConfigParams{Enabled: anthropic.Bool(false)}},
				},
			}},
			{OfMCPToolset: &anthropic.BetaManagedAgentsMCPToolsetParams{MCPServerName: "docs"}},
			weatherTool,
		},
	}))
	same(w, "version", made.Version, 1)
	same(w, "type", string(made.Type), "agent")
	same(w, "name", made.Name, "Every tool")
	same(w, "system", made.System, "Be brief.")
	same(w, "description", made.Description, "Has all kinds of tools.")
	same(w, "metadata", made.Metadata["team"], "blue")
	same(w, "model", made.Model.ID, "scripted/greet")
	same(w, "effort", made.Model.Effort.Type, "low")
	same(w, "speed", string(made.Model.Speed), "standard")
	same(w, "execution identity", made.ExecutionIdentity.Type, "service_account")
	if made.ID == "" || made.CreatedAt.IsZero() || made.UpdatedAt.IsZero() || !made.ArchivedAt.IsZero() {
		t.Errorf("id or times are wrong: %s", made.RawJSON())
	}
	if len(made.Tools) != 3 {
		t.Fatalf("tools: %s", made.RawJSON())
	}
	own := made.Tools[0].AsAgentToolset20260401()
	same(w, "default policy", own.DefaultConfig.PermissionPolicy.Type, "always_allow")
	same(w, "default enabled", own.DefaultConfig.Enabled, true)
	same(w, "configs", len(own.Configs), 2)
	bash := own.Configs[0].AsBash()
	same(w, "bash type", string(bash.Type), "bash")
	same(w, "bash enabled", bash.Enabled, true)
	same(w, "bash policy", bash.PermissionPolicy.Type, "always_ask")
	same(w, "web_fetch enabled", own.Configs[1].AsWebFetch().Enabled, false)
	mcp := made.Tools[1].AsMCPToolset()
	same(w, "MCP server", mcp.MCPServerName, "docs")
	same(w, "MCP default policy", mcp.DefaultConfig.PermissionPolicy.Type, "always_ask")
	custom := made.Tools[2].AsCustom()
	same(w, "custom tool", custom.Name, "get_weather")
	equal(w, "required", custom.InputSchema.Required, []string{"city"})

	got := must[*anthropic.BetaManagedAgentsAgent](w)(w.client.Beta.Agents.Get(w.ctx, made.ID, anthropic.BetaAgentGetParams{}))
	same(w, "retrieved", got.RawJSON(), made.RawJSON())
}

func TestAgentUpdates(t *testing.T) {
	w := begin(t)
	first := w.agent("greet", weatherTool)
	update := func(params anthropic.BetaAgentUpdateParams) *anthropic.BetaManagedAgentsAgent {
		t.Helper()
		return must[*anthropic.BetaManagedAgentsAgent](w)(w.client.Beta.Agents.Update(w.ctx, first.ID, params))
	}
	second := update(anthropic.BetaAgentUpdateParams{
		Version: anthropic.Int(1), System: anthropic.String("Be terse."), Metadata: map[string]string{"a": "1", "b": "2"},
	})
	same(w, "version", second.Version, 2)
	same(w, "system", second.System, "Be terse.")
	same(w, "tools kept", len(second.Tools), 1)

	// The version that was read is not the current one any more.
	_, err := w.client.Beta.Agents.Update(w.ctx, first.ID, anthropic.BetaAgentUpdateParams{Version: anthropic.Int(1), Name: anthropic.String("late")})
	w.refused(err, 409, "", "")

	// Nothing changes: no new version.
	same(w, "version after the same again", update(anthropic.BetaAgentUpdateParams{System: anthropic.String("Be terse.")}).Version, 2)
	same(w, "version after nothing", update(anthropic.BetaAgentUpdateParams{}).Version, 2)

	third := update(anthropic.BetaAgentUpdateParams{
		System: param.Null[string](), Tools: []anthropic.BetaAgentUpdateParamsToolUnion{}, Metadata: map[string]string{"b": "3"},
	})
	same(w, "version", third.Version, 3)
	same(w, "system", third.System, "")
	same(w, "tools", len(third.Tools), 0)
	same(w, "metadata", fmt.Sprint(third.Metadata), "map[a:1 b:3]")

	old := must[*anthropic.BetaManagedAgentsAgent](w)(w.client.Beta.Agents.Get(w.ctx, first.ID, anthropic.BetaAgentGetParams{Version: anthropic.Int(1)}))
	same(w, "version 1", old.Version, 1)
	same(w, "its tools", len(old.Tools), 1)
	_, err = w.client.Beta.Agents.Get(w.ctx, first.ID, anthropic.BetaAgentGetParams{Version: anthropic.Int(9)})
	w.refused(err, 404, "not_found_error", "Agent version not found.")

	var versions []int64
	pager := w.client.Beta.Agents.Versions.ListAutoPaging(w.ctx, first.ID, anthropic.BetaAgentVersionListParams{Limit: anthropic.Int(2)})
	for version := range pager.All() {
		versions = append(versions, version.Version)
	}
	if pager.Err() != nil {
		t.Fatal(pager.Err())
	}
	equal(w, "versions", versions, []int64{3, 2, 1})

	archived := must[*anthropic.BetaManagedAgentsAgent](w)(w.client.Beta.Agents.Archive(w.ctx, first.ID, anthropic.BetaAgentArchiveParams{}))
	if archived.ArchivedAt.IsZero() {
		t.Error("archived_at is not set")
	}
	_, err = w.client.Beta.Agents.Update(w.ctx, first.ID, anthropic.BetaAgentUpdateParams{Name: anthropic.String("x")})
	w.refused(err, 400, "invalid_request_error", "Cannot modify archived agent")
	_, err = w.client.Beta.Sessions.New(w.ctx, anthropic.BetaSessionNewParams{
		Agent: anthropic.BetaSessionNewParamsAgentUnion{OfString: anthropic.String(first.ID)}, EnvironmentID: w.environment().ID,
	})
	w.refused(err, 400, "invalid_request_error", "archived")
	must[*anthropic.BetaManagedAgentsAgent](w)(w.client.Beta.Agents.Get(w.ctx, first.ID, anthropic.BetaAgentGetParams{}))
}

func TestAgentList(t *testing.T) {
	w := begin(t)
	from := w.agent("greet").CreatedAt
	made := map[string]bool{}
	for range 4 {
		made[w.agent("greet").ID] = true
	}
	archived := w.agent("greet").ID
	must[*anthropic.BetaManagedAgentsAgent](w)(w.client.Beta.Agents.Archive(w.ctx, archived, anthropic.BetaAgentArchiveParams{}))
	list := func(params anthropic.BetaAgentListParams) map[string]bool {
		found := map[string]bool{}
		pager := w.client.Beta.Agents.ListAutoPaging(w.ctx, params)
		for agent := range pager.All() {
			if found[agent.ID] {
				t.Errorf("%s is listed twice", agent.ID)
			}
			found[agent.ID] = true
		}
		if pager.Err() != nil {
			t.Fatal(pager.Err())
		}
		return found
	}
	found := list(anthropic.BetaAgentListParams{Limit: anthropic.Int(3), CreatedAtGte: anthropic.Time(from)})
	for id := range made {
		same(w, id, found[id], true)
	}
	same(w, "archived is listed", found[archived], false)
	found = list(anthropic.BetaAgentListParams{Limit: anthropic.Int(100), IncludeArchived: anthropic.Bool(true)})
	same(w, "archived is listed on demand", found[archived], true)
	found = list(anthropic.BetaAgentListParams{CreatedAtLte: anthropic.Time(from.AddDate(-1, 0, 0))})
	same(w, "agents of last year", len(found), 0)
}

func TestModels(t *testing.T) {
	w := begin(t)
	found := map[string]anthropic.BetaModelInfo{}
	pager := w.client.Beta.Models.ListAutoPaging(w.ctx, anthropic.BetaModelListParams{Limit: anthropic.Int(5)})
	for model := range pager.All() {
		found[model.ID] = model
	}
	if pager.Err() != nil {
		t.Fatal(pager.Err())
	}
	for _, id := range []string{"scripted/greet", "scripted/weather"} {
		same(w, "type of "+id, string(found[id].Type), "model")
	}
	one := must[*anthropic.BetaModelInfo](w)(w.client.Beta.Models.Get(w.ctx, "scripted/greet", anthropic.BetaModelGetParams{}))
	same(w, "id", one.ID, "scripted/greet")
	_, err := w.client.Beta.Models.Get(w.ctx, "no-such-model", anthropic.BetaModelGetParams{})
	w.refused(err, 404, "not_found_error", "")
}
