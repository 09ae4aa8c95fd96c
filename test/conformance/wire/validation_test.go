package wire

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/test/harness/raw"
)

// with is a body that is right but for what is changed.
func with(base object, changes ...any) object {
	body := object{}
	for key, value := range base {
		body[key] = value
	}
	for i := 0; i+1 < len(changes); i += 2 {
		body[changes[i].(string)] = changes[i+1]
	}
	return body
}

func custom(name string) object {
	return object{"type": "custom", "name": name, "description": "Does it.", "input_schema": object{"type": "object"}}
}

func many(n int, each func(int) object) []object {
	list := make([]object, n)
	for i := range list {
		list[i] = each(i)
	}
	return list
}

func pairs(n int) object {
	bag := object{}
	for i := range n {
		bag[fmt.Sprint("key", i)] = "v"
	}
	return bag
}

var long = strings.Repeat("x", 100_001)

func TestAgentRules(t *testing.T) {
	t.Parallel()
	c := shared(t)
	base := object{"name": "rules", "model": "scripted/greet"}
	toolset := func(changes ...any) []object {
		return []object{with(object{"type": "agent_toolset_20260401"}, changes...)}
	}
	for _, test := range []struct {
		what  string
		body  object
		words string
	}{
		{"no name", object{"model": "scripted/greet"}, "name"},
		{"empty name", with(base, "name", ""), "name"},
		{"long name", with(base, "name", long[:257]), "name"},
		{"long description", with(base, "description", long[:2049]), "description"},
		{"long system", with(base, "system", long), "system"},
		{"no model", object{"name": "x"}, "model"},
		{"null model", with(base, "model", nil), "model"},
		{"wrong effort", with(base, "model", object{"id": "scripted/greet", "effort": "enormous"}), "effort"},
		{"17 metadata pairs", with(base, "metadata", pairs(17)), "metadata"},
		{"long metadata key", with(base, "metadata", object{long[:65]: "v"}), "metadata"},
		{"long metadata value", with(base, "metadata", object{"k": long[:513]}), "metadata"},
		{"257 tools", with(base, "tools", many(257, func(i int) object { return custom(fmt.Sprint("tool", i)) })), "tools"},
		{"unknown kind of tool", with(base, "tools", []object{{"type": "hammer"}}), "tools[0].type"},
		{"two toolsets", with(base, "tools", append(toolset(), toolset()...)), "at most one agent_toolset_20260401"},
		{"one tool twice", with(base, "tools", toolset("configs", []object{{"name": "bash"}, {"name": "bash"}})), "duplicate entry"},
		{"type is not the name", with(base, "tools", toolset("configs", []object{{"name": "bash", "type": "read"}})), "tools[0].configs[0]"},
		{"custom tool twice", with(base, "tools", []object{custom("a"), custom("a")}), "a"},
		{"custom tool with a bad name", with(base, "tools", []object{custom("a b")}), "name"},
		{"custom tool named as a built-in", with(base, "tools", []object{custom("bash")}), "bash"},
		{"custom tool with a reserved prefix", with(base, "tools", []object{custom("mcp__a")}), "mcp__"},
		{"custom tool without a description", with(base, "tools", []object{with(custom("a"), "description", "")}), "description"},
		{"custom tool without a schema", with(base, "tools", []object{{"type": "custom", "name": "a", "description": "b"}}), "input_schema"},
		{"custom tool with an array as schema", with(base, "tools", []object{with(custom("a"), "input_schema", object{"type": "array"})}), "input_schema"},
		{"custom tool with a reference", with(base, "tools", []object{with(custom("a"), "input_schema",
			object{"type": "object", "properties": object{"p": object{"$ref": "#/x"}}})}), "$ref"},
		{"custom tool with a choice", with(base, "tools", []object{with(custom("a"), "input_schema", object{"type": "object", "anyOf": []object{}})}), "anyOf"},
		{"toolset of an unknown server", with(base, "tools", []object{{"type": "mcp_toolset", "mcp_server_name": "x"}}), "x"},
		{"server without a toolset", with(base, "mcp_servers", []object{{"type": "url", "name": "x", "url": "https://example.com"}}), "x"},
		{"21 servers", with(base, "mcp_servers", many(21, func(i int) object {
			return object{"type": "url", "name": fmt.Sprint("s", i), "url": "https://example.com"}
		})), "mcp_servers"},
		{"both lists of domains", with(base, "tools", toolset("configs", []object{{"name": "web_fetch",
			"allowed_domains": []string{"example.com"}, "blocked_domains": []string{"example.org"}}})), "domains"},
		{"no domain", with(base, "tools", toolset("configs", []object{{"name": "web_search", "allowed_domains": []string{}}})), "Empty list of domains is ambiguous"},
		{"an address for a domain", with(base, "tools", toolset("configs", []object{{"name": "web_fetch", "allowed_domains": []string{"127.0.0.1"}}})), "allowed_domains"},
		{"a public suffix", with(base, "tools", toolset("configs", []object{{"name": "web_fetch", "allowed_domains": []string{"co.uk"}}})), "allowed_domains"},
	} {
		t.Run(test.what, func(t *testing.T) {
			r := c.Do(t, "POST", "/v1/agents", test.body).WantError(t, 400, "invalid_request_error")
			if m := r.Get("error.message").String(); !strings.Contains(m, test.words) {
				t.Errorf("message %q, want %q in it", m, test.words)
			}
		})
	}
	// What stands on a limit is accepted.
	c.Do(t, "POST", "/v1/agents", with(base, "name", strings.Repeat("é", 256), "description", long[:2048], "system", long[:100_000],
		"metadata", pairs(16), "tools", many(200, func(i int) object { return custom(fmt.Sprint("tool", i)) }))).Want(t, 200)
	c.Do(t, "POST", "/v1/agents", with(base, "description", nil, "system", nil, "tools", nil, "metadata", nil, "mcp_servers", nil, "skills", nil)).Want(t, 200)
}

func TestEnvironmentRules(t *testing.T) {
	t.Parallel()
	c := shared(t)
	limited := func(changes ...any) object {
		return object{"name": "x", "config": object{"type": "cloud", "networking": with(object{"type": "limited"}, changes...)}}
	}
	for what, test := range map[string]struct {
		body  object
		words string
	}{
		"no name":                 {object{}, "name"},
		"unknown kind":            {object{"name": "x", "config": object{"type": "cellar"}}, "config.type"},
		"unknown network":         {object{"name": "x", "config": object{"type": "cloud", "networking": object{"type": "some"}}}, "networking.type"},
		"host with a scheme":      {limited("allowed_hosts", []string{"https://example.com"}), "scheme"},
		"host with a port":        {limited("allowed_hosts", []string{"example.com:80"}), "port"},
		"host with a path":        {limited("allowed_hosts", []string{"example.com/x"}), "allowed_hosts"},
		"packages, not reachable": {object{"name": "x", "config": object{"type": "cloud", "networking": object{"type": "limited"}, "packages": object{"pip": []string{"numpy"}}}}, "allow_package_managers"},
		"account scope":           {object{"name": "x", "scope": "account"}, "scope"},
		"self-hosted with more":   {object{"name": "x", "config": object{"type": "self_hosted", "packages": object{}}}, "packages"},
	} {
		t.Run(what, func(t *testing.T) {
			r := c.Do(t, "POST", "/v1/environments", test.body).WantError(t, 400, "invalid_request_error")
			if m := r.Get("error.message").String(); !strings.Contains(m, test.words) {
				t.Errorf("message %q, want %q in it", m, test.words)
			}
		})
	}
	c.Do(t, "POST", "/v1/environments", object{"name": "x", "config": nil, "description": nil}).Want(t, 200)
}

func TestSessionRules(t *testing.T) {
	t.Parallel()
	c := shared(t)
	base := object{"agent": agent(t, c, "greet", allTools), "environment_id": environment(t, c)}
	budget := func(amount any, currency string) object {
		return object{"type": "limit", "max_list_cost": object{"amount": amount, "currency": currency}}
	}
	own := c.Do(t, "POST", "/v1/environments", object{"name": "own", "config": object{"type": "self_hosted"}}).Want(t, 200).Get("id").String()
	file := upload(t, c, "a.txt", "x").Want(t, 200).Get("id").String()
	mount := func(path string) []object {
		return []object{{"type": "file", "file_id": file, "mount_path": path}}
	}
	first := func(events ...object) object { return with(base, "initial_events", events) }
	for what, test := range map[string]struct {
		status int
		body   object
		words  string
	}{
		"no agent":                   {400, object{"environment_id": base["environment_id"]}, "agent"},
		"no environment":             {400, object{"agent": base["agent"]}, "environment_id"},
		"unknown agent":              {404, with(base, "agent", "agent_011CZkYpogX7uDKUyvBTophP"), ""},
		"unknown environment":        {404, with(base, "environment_id", "env_011CZkZ9X2dpNyB7HsEFoRfW"), ""},
		"17 metadata pairs":          {400, with(base, "metadata", pairs(17)), "metadata"},
		"budget of nothing":          {400, with(base, "budget", budget("0", "USD")), "budget"},
		"budget with a leading zero": {400, with(base, "budget", budget("010", "USD")), "budget"},
		"budget with a point":        {400, with(base, "budget", budget("1.5", "USD")), "budget"},
		"budget as a number":         {400, with(base, "budget", budget(100, "USD")), "budget"},
		"budget in another currency": {400, with(base, "budget", budget("100", "EUR")), "currency"},
		"unpriced model with budget": {400, with(base, "budget", budget("100", "USD"), "agent", object{"type": "agent_with_overrides", "id": base["agent"], "model": "no-such-model"}), ""},
		"override without a model":   {400, with(base, "agent", object{"type": "agent_with_overrides", "id": base["agent"], "model": nil}), "model"},
		"initial interrupt":          {400, first(object{"type": "user.interrupt"}), "initial_events"},
		"initial system message":     {400, first(object{"type": "system.message", "content": text("x")}), "initial_events"},
		"51 initial events":          {400, first(many(51, func(int) object { return object{"type": "user.message", "content": text("x")} })...), "initial_events"},
		"mount that escapes":         {400, with(base, "resources", mount("/../../etc/passwd")), "escapes"},
		"mounts that overlap":        {400, with(base, "resources", append(mount("/a"), mount("/a/b")...)), "overlaps"},
		"unknown file":               {404, with(base, "resources", []object{{"type": "file", "file_id": "file_011CNha8iCJcU1wXNR6q4V8w"}}), ""},
		"files on self-hosted":       {400, with(base, "environment_id", own, "resources", mount("/a")), "self-hosted"},
	} {
		t.Run(what, func(t *testing.T) {
			r := c.Do(t, "POST", "/v1/sessions", test.body).WantError(t, test.status, "")
			if m := r.Get("error.message").String(); !strings.Contains(m, test.words) {
				t.Errorf("message %q, want %q in it", m, test.words)
			}
		})
	}
	c.Do(t, "POST", "/v1/sessions", with(base, "initial_events", []object{}, "title", nil, "metadata", nil, "resources", nil, "budget", nil, "vault_ids", []string{})).Want(t, 200)
	c.Do(t, "POST", "/v1/sessions", object{"agent": base["agent"], "environment_id": own}).Want(t, 200)
}

func TestEventRules(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", allTools)
	path := "/v1/sessions/" + own + "/events"
	event := func(kind string, fields ...any) object {
		return object{"events": []object{with(object{"type": kind}, fields...)}}
	}
	block := func(b object) object { return event("user.message", "content", []object{b}) }
	for what, body := range map[string]object{
		"no events":                   {},
		"null events":                 {"events": nil},
		"an empty list":               {"events": []object{}},
		"an event of the server":      event("agent.message", "content", text("x")),
		"no content":                  event("user.message"),
		"empty content":               event("user.message", "content", []object{}),
		"empty text":                  block(object{"type": "text", "text": ""}),
		"unknown block":               block(object{"type": "poem"}),
		"redacted block":              block(object{"type": "redacted"}),
		"image of an unknown kind":    block(object{"type": "image", "source": object{"type": "base64", "media_type": "image/bmp", "data": "AAAA"}}),
		"image that is no base64":     block(object{"type": "image", "source": object{"type": "base64", "media_type": "image/png", "data": "%%%"}}),
		"search result of a person":   block(object{"type": "search_result", "source": "x", "title": "x", "content": text("x"), "citations": object{"enabled": true}}),
		"a reason for an allowance":   event("user.tool_confirmation", "tool_use_id", "sevt_011CZkZAtmR3yMPDzynEDxu7", "result", "allow", "deny_message", "x"),
		"a verdict that is none":      event("user.tool_confirmation", "tool_use_id", "sevt_011CZkZAtmR3yMPDzynEDxu7", "result", "perhaps"),
		"two system messages":         {"events": []object{{"type": "system.message", "content": text("a")}, {"type": "system.message", "content": text("b")}}},
		"system message in between":   {"events": []object{{"type": "system.message", "content": text("a")}, {"type": "user.message", "content": text("b")}}},
		"result of a cloud tool":      event("user.tool_result", "tool_use_id", "sevt_011CZkZAtmR3yMPDzynEDxu7", "content", text("x")),
		"interrupt of another thread": event("user.interrupt", "session_thread_id", "sthr_011CZkZAtmR3yMPDzynEDxu7"),
	} {
		t.Run(what, func(t *testing.T) {
			r := c.Do(t, "POST", path, body)
			if r.Status != 400 && r.Status != 404 {
				t.Fatalf("status %d: %s", r.Status, r.Body)
			}
			r.WantError(t, r.Status, "")
		})
	}
	expect(t, "events", len(log(t, c, own)), 0)
	// An id, a time or a null that the server itself shows may come back.
	c.Do(t, "POST", path, event("user.message", "content", text("x"), "processed_at", nil)).Want(t, 200)
	c.Do(t, "GET", path+"?types[]=no.such.type", nil).WantError(t, 400, "invalid_request_error")
}

// Confirmations are for calls that ask.
func TestConfirmationOfAnAllowedCall(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "shell", allTools)
	frames := converse(t, c, own, "run")
	at := slices.IndexFunc(frames, func(f raw.Frame) bool { return f.Event == "agent.tool_use" })
	c.Do(t, "POST", "/v1/sessions/"+own+"/events", object{"events": []object{{"type": "user.tool_confirmation",
		"tool_use_id": frames[at].Get("id").String(), "result": "allow"}}}).WantError(t, 400, "invalid_request_error")
}

func TestFileRules(t *testing.T) {
	t.Parallel()
	c := shared(t)
	for name, want := range map[string]string{"dir/sub/a.txt": "a.txt", "日本.csv": "日本.csv"} {
		expect(t, name, upload(t, c, name, "x").Want(t, 200).Get("filename"), want)
	}
	c.Do(t, "POST", "/v1/files", "nothing", "Content-Type", "multipart/form-data; boundary=x").WantError(t, 400, "invalid_request_error")
	c.Do(t, "POST", "/v1/files", object{"file": "x"}).WantError(t, 400, "invalid_request_error")
	c.Do(t, "GET", "/v1/files?scope_id=nonsense", nil)
	query := "/v1/files?" + strings.Repeat("ids[]=file_011CNha8iCJcU1wXNR6q4V8w&", 101)
	c.Do(t, "GET", query, nil).WantError(t, 400, "invalid_request_error")
	c.Do(t, "GET", "/v1/files?ids[]=file_011CNha8iCJcU1wXNR6q4V8w&limit=1", nil).WantError(t, 400, "invalid_request_error")
	c.Do(t, "GET", "/v1/files?limit=1001", nil).WantError(t, 400, "invalid_request_error")
	// Clients of the time before general availability ask with another header, and get another list.
	upload(t, c, "old.txt", "x").Want(t, 200)
	oldBeta := []string{"Anthropic-Beta", "files-api-2025-04-14"}
	first := c.Do(t, "GET", "/v1/files?limit=1", nil, oldBeta...).Want(t, 200)
	expect(t, "has_more", first.Get("has_more"), true)
	expect(t, "first_id", first.Get("first_id"), first.Get("data.0.id"))
	expect(t, "last_id", first.Get("last_id"), first.Get("data.0.id"))
	second := c.Do(t, "GET", "/v1/files?limit=1&after_id="+first.Get("last_id").String(), nil, oldBeta...).Want(t, 200)
	back := c.Do(t, "GET", "/v1/files?limit=1&before_id="+second.Get("first_id").String(), nil, oldBeta...).Want(t, 200)
	expect(t, "the page before the second", back.Get("data.0.id"), first.Get("data.0.id"))
}

// Paths that are written otherwise are other paths: they are not found, and nobody is sent elsewhere.
func TestOddPaths(t *testing.T) {
	t.Parallel()
	c := shared(t)
	for _, path := range []string{"/v1//agents", "//v1/agents", "/v1/agents/", "/v1/./agents", "/v1/x/../agents", "/V1/agents", "/v1/agents/%2e%2e/agents"} {
		r := c.Do(t, "GET", path, nil)
		if r.Status != 404 && r.Status != 400 {
			t.Errorf("%s: %d", path, r.Status)
		} else {
			r.WantError(t, r.Status, "")
		}
	}
}

// Of many updates that name the same version one succeeds.
func TestUpdatesAtOnce(t *testing.T) {
	t.Parallel()
	c := shared(t)
	id := agent(t, c, "greet", nil)
	const writers = 12
	statuses := make([]int, writers)
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			r, err := c.Try("POST", "/v1/agents/"+id, object{"version": 1, "name": fmt.Sprint("writer ", i)})
			if err == nil {
				statuses[i] = r.Status
			}
		})
	}
	group.Wait()
	slices.Sort(statuses)
	expect(t, "successes", statuses[0], 200)
	expect(t, "the others", slices.Compact(statuses[1:]), []int{409})
	expect(t, "version", c.Do(t, "GET", "/v1/agents/"+id, nil).Get("version"), 2)
}

// Messages that many clients send at once are all there, each once, and each is answered.
func TestMessagesAtOnce(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", nil)
	stream := c.Stream(t, "/v1/sessions/"+own+"/events/stream")
	const writers = 12
	sent := make([]string, writers)
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			if r, err := c.Try("POST", "/v1/sessions/"+own+"/events", message(fmt.Sprint("number ", i))); err == nil && r.Status == 200 {
				sent[i] = r.Get("data.0.id").String()
			}
		})
	}
	group.Wait()
	// A turn may end before the last message has come, so the end is when every message has its time and the session idles.
	processed := map[string]bool{}
	stream.Until(t, func(f raw.Frame) bool {
		if f.Event == "user.message" && f.Get("processed_at").String() != "" {
			processed[f.Get("id").String()] = true
		}
		return f.Event == "session.status_idle" && len(processed) == writers
	})
	var listed []string
	for _, item := range log(t, c, own) {
		if item.Get("type").String() == "user.message" {
			listed = append(listed, item.Get("id").String())
		}
	}
	slices.Sort(sent)
	slices.Sort(listed)
	equal(t, "messages", listed, sent)
}

// A client that goes does not stop the work; one that comes while the model is silent learns that it runs.
func TestReadersComeAndGo(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "silent", nil)
	path := "/v1/sessions/" + own
	stream := c.Stream(t, path+"/events/stream")
	c.Do(t, "POST", path+"/events", message("go")).Want(t, 200)
	stream.UntilType(t, "span.model_request_start")
	stream.Close()
	expect(t, "status", c.Do(t, "GET", path, nil).Get("status"), "running")
	second := c.Stream(t, path+"/events/stream")
	c.Do(t, "POST", path+"/events", object{"events": []object{{"type": "user.interrupt"}}}).Want(t, 200)
	frames := second.UntilType(t, "session.status_idle")
	expect(t, "stop reason", frames[len(frames)-1].Get("stop_reason.type"), "end_turn")
	frames = converse(t, c, own, "again")
	expect(t, "answer", frames[4].Get("content.0.text"), "Back again.")
}
