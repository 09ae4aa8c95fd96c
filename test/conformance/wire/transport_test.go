package wire

import (
	"regexp"
	"strings"
	"testing"

	"github.com/perdure/perdure/test/harness/raw"
)

func TestCredentials(t *testing.T) {
	t.Parallel()
	c := shared(t)
	for name, header := range map[string][]string{
		"bearer":                 nil,
		"x-api-key":              {"Authorization", "-", "X-Api-Key", c.Key},
		"version 2026-10-21":     {"Anthropic-Version", "2026-10-21"},
		"version 2023-06-01":     {"Anthropic-Version", "2023-06-01"},
		"no version":             {"Anthropic-Version", "-"},
		"no beta":                {"Anthropic-Beta", "-"},
		"unknown beta":           {"Anthropic-Beta", "managed-agents-2026-04-01,no-such-thing-2020-01-01"},
		"workspace header":       {"Anthropic-Workspace-Id", "wrkspc_011CZkZaBF1tNoB5wlCeusgy"},
		"stainless headers":      {"X-Stainless-Retry-Count", "1", "User-Agent", "Anthropic/JS 1.14.0"},
		"bearer and old api key": {"X-Api-Key", c.Key},
	} {
		t.Run(name, func(t *testing.T) {
			c.Do(t, "GET", "/v1/agents", nil, header...).Want(t, 200)
		})
	}
	for name, header := range map[string][]string{
		"none":          {"Authorization", "-"},
		"wrong bearer":  {"Authorization", "Bearer sk-ant-wrong"},
		"wrong api key": {"Authorization", "-", "X-Api-Key", "sk-ant-wrong"},
		"empty bearer":  {"Authorization", "Bearer "},
		"basic":         {"Authorization", "Basic " + c.Key},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.Do(t, "GET", "/v1/agents", nil, header...).WantError(t, 401, "authentication_error")
			expect(t, "message", r.Get("error.message"), "Authentication failed")
		})
	}
}

func TestQueryParametersThatMeanNothing(t *testing.T) {
	t.Parallel()
	c := shared(t)
	for _, path := range []string{"/v1/agents?beta=true", "/v1/agents?whatever=1&beta=true&x[]=2", "/v1/files?beta=true",
		"/v1/sessions?beta=true&limit=1&created_by=me", "/v1/environments?beta=true", "/v1/models?beta=true"} {
		c.Do(t, "GET", path, nil).Want(t, 200)
	}
	c.Do(t, "POST", "/v1/environments?beta=true", object{"name": "beta"}).Want(t, 200)
}

var requestID = regexp.MustCompile(`^req_[0-9A-Za-z]{10,}$`)

func TestResponseHeaders(t *testing.T) {
	t.Parallel()
	c := shared(t)
	seen := map[string]bool{}
	for range 3 {
		r := c.Do(t, "GET", "/v1/agents", nil).Want(t, 200)
		id := r.Header.Get("Request-Id")
		if !requestID.MatchString(id) || seen[id] {
			t.Errorf("request id %q: want a fresh req_…", id)
		}
		seen[id] = true
		expect(t, "content type", r.Header.Get("Content-Type"), "application/json")
		if w := r.Header.Get("Anthropic-Workspace-Id"); !strings.HasPrefix(w, "wrkspc_") {
			t.Errorf("workspace %q", w)
		}
	}
}

// The order of refusal: a path that does not exist, credentials, the body, the thing that is not there, its state.
func TestOrderOfRefusal(t *testing.T) {
	t.Parallel()
	c := shared(t)
	anonymous := raw.Client{URL: c.URL}
	for _, path := range []string{"/v1/nothing", "/nothing", "/v1/agents/x/y/z", "/v1/sessions/s/threads/t/events/stream",
		"/v1/memory_stores", "/v1/vaults", "/v1/deployments", "/v1/skills", "/v1/dreams", "/v1/messages/batches"} {
		anonymous.Do(t, "GET", path, nil).WantError(t, 404, "not_found_error")
		c.Do(t, "GET", path, nil).WantError(t, 404, "not_found_error")
		c.Do(t, "POST", path, object{}).WantError(t, 404, "not_found_error")
	}
	unknown := "/v1/agents/agent_011CZkYpogX7uDKUyvBTophP"
	anonymous.Do(t, "GET", unknown, nil).WantError(t, 401, "authentication_error")
	anonymous.Do(t, "POST", unknown, `{"name":`).WantError(t, 401, "authentication_error")
	c.Do(t, "POST", unknown, `{"name":`).WantError(t, 400, "invalid_request_error")
	c.Do(t, "POST", unknown, object{"name": 7}).WantError(t, 400, "invalid_request_error")
	c.Do(t, "POST", unknown, object{"name": "x"}).WantError(t, 404, "not_found_error")

	events := "/v1/sessions/sesn_011CZkZAtmR3yMPDzynEDxu7/events"
	c.Do(t, "POST", events, object{"events": []object{{"type": "user.nonsense"}}}).WantError(t, 400, "invalid_request_error")
	c.Do(t, "POST", events, message("hello")).WantError(t, 404, "not_found_error")
}

func TestMethodsThatDoNotExist(t *testing.T) {
	t.Parallel()
	c := shared(t)
	id := agent(t, c, "greet", nil)
	for _, method := range []string{"PATCH", "PUT", "DELETE"} {
		r := c.Do(t, method, "/v1/agents/"+id, object{})
		expect(t, method, r.Status, 405)
		expect(t, "type", r.Get("error.type"), "invalid_request_error")
	}
	c.Do(t, "PATCH", "/v1/sessions", object{}).Want(t, 405)
	c.Do(t, "DELETE", "/v1/sessions", nil).Want(t, 405)
}

func TestUnknownIDs(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", nil)
	for _, path := range []string{
		"/v1/agents/agent_011CZkYpogX7uDKUyvBTophP",
		"/v1/agents/agent_011CZkYpogX7uDKUyvBTophP/versions",
		"/v1/environments/env_011CZkZ9X2dpNyB7HsEFoRfW",
		"/v1/sessions/sesn_011CZkZAtmR3yMPDzynEDxu7",
		"/v1/sessions/sesn_011CZkZAtmR3yMPDzynEDxu7/events",
		"/v1/sessions/sesn_011CZkZAtmR3yMPDzynEDxu7/events/stream",
		"/v1/sessions/sesn_011CZkZAtmR3yMPDzynEDxu7/threads",
		"/v1/sessions/sesn_011CZkZAtmR3yMPDzynEDxu7/resources",
		"/v1/sessions/" + own + "/threads/sthr_011CZkZAtmR3yMPDzynEDxu7",
		"/v1/sessions/" + own + "/threads/sthr_011CZkZAtmR3yMPDzynEDxu7/stream",
		"/v1/sessions/" + own + "/resources/sesrsc_011CZkZAtmR3yMPDzynEDxu7",
		"/v1/files/file_011CNha8iCJcU1wXNR6q4V8w",
		"/v1/files/file_011CNha8iCJcU1wXNR6q4V8w/content",
		"/v1/models/no-such-model",
	} {
		t.Run(path, func(t *testing.T) {
			c.Do(t, "GET", path, nil).WantError(t, 404, "not_found_error")
		})
	}
	for _, path := range []string{"/v1/agents/agent_011CZkYpogX7uDKUyvBTophP/archive", "/v1/environments/env_011CZkZ9X2dpNyB7HsEFoRfW/archive",
		"/v1/sessions/sesn_011CZkZAtmR3yMPDzynEDxu7/archive"} {
		c.Do(t, "POST", path, nil).WantError(t, 404, "not_found_error")
	}
	r := c.Do(t, "GET", "/v1/agents/nonsense", nil).WantError(t, 400, "invalid_request_error")
	expect(t, "message", r.Get("error.message"), "Invalid agent ID.")
	r = c.Do(t, "GET", "/v1/agents/"+agent(t, c, "greet", nil)+"?version=999", nil).WantError(t, 404, "not_found_error")
	expect(t, "message", r.Get("error.message"), "Agent version not found.")
}

// A conflict that a repetition cannot cure says so: the clients repeat a 409 otherwise.
func TestConflictIsNotToBeRepeated(t *testing.T) {
	t.Parallel()
	c := shared(t)
	id := agent(t, c, "greet", nil)
	r := c.Do(t, "POST", "/v1/agents/"+id, object{"version": 7, "name": "other"}).WantError(t, 409, "")
	expect(t, "x-should-retry", r.Header.Get("X-Should-Retry"), "false")
	// Also if nothing would change.
	c.Do(t, "POST", "/v1/agents/"+id, object{"version": 7}).WantError(t, 409, "")
	got := c.Do(t, "GET", "/v1/agents/"+id, nil).Want(t, 200)
	expect(t, "version", got.Get("version"), 1)
}

// Actions are sent without a body, and sometimes with an empty object.
func TestActionsWithAndWithoutBody(t *testing.T) {
	t.Parallel()
	c := shared(t)
	for _, body := range []any{nil, "", "{}"} {
		id := agent(t, c, "greet", nil)
		archived := c.Do(t, "POST", "/v1/agents/"+id+"/archive", body).Want(t, 200)
		if archived.Get("archived_at").String() == "" {
			t.Errorf("archived_at is missing: %s", archived.Body)
		}
		again := c.Do(t, "POST", "/v1/agents/"+id+"/archive", body).Want(t, 200)
		expect(t, "archived_at of the second time", again.Get("archived_at"), archived.Get("archived_at"))
		env := environment(t, c)
		c.Do(t, "POST", "/v1/environments/"+env+"/archive", body).Want(t, 200)
		c.Do(t, "POST", "/v1/environments/"+env+"/archive", body).Want(t, 200)
		deleted := c.Do(t, "DELETE", "/v1/environments/"+env, nil).Want(t, 200)
		expect(t, "type", deleted.Get("type"), "environment_deleted")
		expect(t, "id", deleted.Get("id"), env)
	}
}

// What the server shows is accepted as input again, and two reads give the same bytes.
func TestOwnShapesAsInput(t *testing.T) {
	t.Parallel()
	c := shared(t)
	id := agent(t, c, "greet", []object{{"type": "agent_toolset_20260401", "configs": []object{{"name": "bash",
		"permission_policy": object{"type": "always_ask"}}, {"name": "web_fetch", "enabled": true}}}})
	first := c.Do(t, "GET", "/v1/agents/"+id, nil).Want(t, 200)
	second := c.Do(t, "GET", "/v1/agents/"+id, nil).Want(t, 200)
	expect(t, "second read", string(second.Body), string(first.Body))
	updated := c.Do(t, "POST", "/v1/agents/"+id, first.Body).Want(t, 200)
	expect(t, "version after an update with itself", updated.Get("version"), 1)
	expect(t, "tools", updated.Get("tools").Raw, first.Get("tools").Raw)
}
