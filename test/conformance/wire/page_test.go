package wire

import (
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/perdure/perdure/test/harness/raw"
)

// sessions makes n sessions of one agent and answers the agent and the sessions, oldest first.
func sessions(t *testing.T, c raw.Client, n int) (agentID string, list []string) {
	t.Helper()
	agentID = agent(t, c, "greet", nil)
	env := environment(t, c)
	for range n {
		list = append(list, c.Do(t, "POST", "/v1/sessions", object{"agent": agentID, "environment_id": env}).Want(t, 200).Get("id").String())
	}
	return agentID, list
}

func TestPagesOfSessions(t *testing.T) {
	t.Parallel()
	c := shared(t)
	agentID, made := sessions(t, c, 5)
	oldest := slices.Clone(made)
	slices.Reverse(made)
	base := "/v1/sessions?agent_id=" + agentID
	equal(t, "newest first", ids(all(t, c, base+"&limit=2")), made)
	equal(t, "ascending", ids(all(t, c, base+"&limit=2&order=asc")), oldest)

	first := c.Do(t, "GET", base+"&limit=2", nil).Want(t, 200)
	if prev := first.Get("prev_page"); !prev.Exists() || prev.Raw != "null" {
		t.Errorf("prev_page of the first page is %q, want null", prev.Raw)
	}
	second := c.Do(t, "GET", base+"&limit=2&page="+first.Get("next_page").String(), nil).Want(t, 200)
	back := c.Do(t, "GET", base+"&limit=2&page="+second.Get("prev_page").String(), nil).Want(t, 200)
	equal(t, "the page before the second", ids(back.Get("data").Array()), made[:2])
	last := c.Do(t, "GET", base+"&limit=2&page="+second.Get("next_page").String(), nil).Want(t, 200)
	equal(t, "the last page", ids(last.Get("data").Array()), made[4:])
	if next := last.Get("next_page"); !next.Exists() || next.Raw != "null" {
		t.Errorf("next_page of the last page is %q, want null", next.Raw)
	}
	// The limit may change from page to page.
	wide := c.Do(t, "GET", base+"&limit=100&page="+first.Get("next_page").String(), nil).Want(t, 200)
	equal(t, "a wider second page", ids(wide.Get("data").Array()), made[2:])
}

func TestPagesOfOtherLists(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "chunks", allTools)
	converse(t, c, own, "go")
	whole := ids(log(t, c, own))
	equal(t, "events, page by page", ids(all(t, c, "/v1/sessions/"+own+"/events?limit=3")), whole)
	reversed := ids(all(t, c, "/v1/sessions/"+own+"/events?limit=3&order=desc"))
	slices.Reverse(reversed)
	equal(t, "events, descending", reversed, whole)

	id := agent(t, c, "greet", nil)
	for version := 2; version <= 5; version++ {
		c.Do(t, "POST", "/v1/agents/"+id, object{"name": fmt.Sprint("version ", version)}).Want(t, 200)
	}
	var versions []string
	for _, item := range all(t, c, "/v1/agents/"+id+"/versions?limit=2") {
		versions = append(versions, item.Get("version").Raw)
	}
	equal(t, "versions", versions, []string{"5", "4", "3", "2", "1"})

	for _, path := range []string{"/v1/agents?limit=1", "/v1/environments?limit=1", "/v1/sessions/" + own + "/events?limit=1",
		"/v1/files?limit=1", "/v1/sessions/" + own + "/threads", "/v1/agents/" + id + "/versions?limit=1"} {
		page := c.Do(t, "GET", path, nil).Want(t, 200)
		if page.Get("prev_page").Exists() {
			t.Errorf("%s has prev_page; only the list of sessions has", path)
		}
		if next := page.Get("next_page"); next.Exists() && next.Raw == `""` {
			t.Errorf("%s: next_page is an empty string", path)
		}
		if !page.Get("data").IsArray() {
			t.Errorf("%s: data is no array: %s", path, page.Body)
		}
	}
}

func TestBadCursors(t *testing.T) {
	t.Parallel()
	c := shared(t)
	agentID, _ := sessions(t, c, 3)
	own := session(t, c, "greet", nil)
	converse(t, c, own, "hello")
	base := "/v1/sessions?agent_id=" + agentID + "&limit=1"
	next := c.Do(t, "GET", base, nil).Want(t, 200).Get("next_page").String()

	r := c.Do(t, "GET", base+"&order=asc&page="+next, nil).WantError(t, 400, "invalid_request_error")
	expect(t, "message", r.Get("error.message"), "page token order does not match request")
	events := "/v1/sessions/" + own + "/events?limit=1"
	eventsNext := c.Do(t, "GET", events, nil).Want(t, 200).Get("next_page").String()
	c.Do(t, "GET", events+"&order=desc&page="+eventsNext, nil).WantError(t, 400, "invalid_request_error")

	for _, bad := range []string{"nonsense", "e30", "eyJhIjoiIn0", "%00", "W10", next[:len(next)-3], url.QueryEscape("💥"), "bnVsbA"} {
		for _, path := range []string{"/v1/agents?page=", "/v1/environments?page=", "/v1/sessions?page=",
			"/v1/sessions/" + own + "/events?page=", "/v1/files?page="} {
			r := c.Do(t, "GET", path+bad, nil)
			if r.Status != 400 {
				t.Errorf("%s%s: %s", path, bad, r)
			} else {
				expect(t, path+bad, r.Get("error.message"), "invalid page cursor")
			}
		}
	}
	for _, limit := range []string{"0", "-1", "x", "1.5", "100000000000000000000"} {
		c.Do(t, "GET", "/v1/agents?limit="+limit, nil).WantError(t, 400, "invalid_request_error")
		c.Do(t, "GET", "/v1/sessions/"+own+"/events?limit="+limit, nil).WantError(t, 400, "invalid_request_error")
	}
	for _, order := range []string{"up", "ASC"} {
		c.Do(t, "GET", "/v1/sessions?order="+order, nil).WantError(t, 400, "invalid_request_error")
	}
	c.Do(t, "GET", "/v1/sessions/"+own+"/events?limit=1000", nil).Want(t, 200)
}

func TestTimeFilters(t *testing.T) {
	t.Parallel()
	c := shared(t)
	agentID, made := sessions(t, c, 3)
	middle := c.Do(t, "GET", "/v1/sessions/"+made[1], nil).Want(t, 200).Get("created_at").String()
	base := "/v1/sessions?order=asc&agent_id=" + agentID
	for filter, want := range map[string][]string{
		"created_at[gt]":      made[2:],
		"created_at[gte]":     made[1:],
		"created_at[lt]":      made[:1],
		"created_at[lte]":     made[:2],
		"created_at%5Bgte%5D": made[1:],
		"created_at%5Blt%5D":  made[:1],
	} {
		equal(t, filter, ids(all(t, c, base+"&"+filter+"="+url.QueryEscape(middle))), want)
	}
	c.Do(t, "GET", base+"&created_at[gte]=yesterday", nil).WantError(t, 400, "invalid_request_error")

	own := session(t, c, "greet", nil)
	converse(t, c, own, "hello")
	whole := log(t, c, own)
	at := whole[2].Get("processed_at").String()
	events := "/v1/sessions/" + own + "/events?created_at[gt]=" + url.QueryEscape(at)
	equal(t, "events later than the third", ids(all(t, c, events)), ids(whole[3:]))
	events = "/v1/sessions/" + own + "/events?created_at[lte]=" + url.QueryEscape(at)
	equal(t, "events up to the third", ids(all(t, c, events)), ids(whole[:3]))
	// A whole second, another zone and other widths of the fraction are times too.
	for _, moment := range []string{"2020-01-01T00:00:00Z", "2020-01-01T00:00:00.5Z", "2020-01-01T02:00:00%2B02:00", "2020-01-01T00:00:00.123456789Z"} {
		c.Do(t, "GET", "/v1/sessions?created_at[gte]="+moment, nil).Want(t, 200)
	}
}

func TestArrayFilters(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", nil)
	converse(t, c, own, "hello")
	var want []string
	for _, item := range log(t, c, own) {
		if kind := item.Get("type").String(); kind == "user.message" || kind == "agent.message" {
			want = append(want, item.Get("id").String())
		}
	}
	expect(t, "messages in the log", len(want), 2)
	base := "/v1/sessions/" + own + "/events?"
	for _, query := range []string{"types[]=user.message&types[]=agent.message", "types%5B%5D=user.message&types%5B%5D=agent.message",
		"types=user.message&types=agent.message", "types[]=user.message&types=agent.message"} {
		equal(t, query, ids(all(t, c, base+query)), want)
	}
	equal(t, "one type, page by page", ids(all(t, c, base+"types[]=agent.message&limit=1")), want[1:])

	agentID := c.Do(t, "GET", "/v1/sessions/"+own, nil).Get("agent.id").String()
	equal(t, "idle", ids(all(t, c, "/v1/sessions?statuses[]=idle&agent_id="+agentID)), []string{own})
	equal(t, "idle or running", ids(all(t, c, "/v1/sessions?statuses%5B%5D=running&statuses%5B%5D=idle&agent_id="+agentID)), []string{own})
	equal(t, "running", ids(all(t, c, "/v1/sessions?statuses[]=running&agent_id="+agentID)), nil)
	c.Do(t, "GET", "/v1/sessions?statuses[]=sleeping", nil).WantError(t, 400, "invalid_request_error")
	equal(t, "version 1", ids(all(t, c, "/v1/sessions?agent_version=1&agent_id="+agentID)), []string{own})
	equal(t, "version 2", ids(all(t, c, "/v1/sessions?agent_version=2&agent_id="+agentID)), nil)
	c.Do(t, "GET", "/v1/sessions?agent_version=1", nil).WantError(t, 400, "invalid_request_error")
}
