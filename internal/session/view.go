package session

import (
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Money is an amount as the wire has it: whole cents, as a string.
type Money struct {
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

func dollars(c int64) Money { return Money{Amount: strconv.FormatInt(c, 10), Currency: "USD"} }

// BudgetView is a budget as the wire has it.
type BudgetView struct {
	Type        string `json:"type"`
	MaxListCost Money  `json:"max_list_cost"`
}

// NewBudgetView returns nil for a session without a budget.
func NewBudgetView(c *Config) *BudgetView {
	if !c.Budgeted() {
		return nil
	}
	return &BudgetView{Type: "limit", MaxListCost: dollars(c.BudgetCents)}
}

// UsageView is the usage of a session or a thread as the wire has it.
type UsageView struct {
	Input         int64         `json:"input_tokens"`
	Output        int64         `json:"output_tokens"`
	CacheRead     int64         `json:"cache_read_input_tokens"`
	CacheCreation CacheCreation `json:"cache_creation"`
	ActiveSeconds float64       `json:"active_seconds"`
	ListCost      *Money        `json:"list_cost"` // null if a model without a list price was used
	ServerToolUse ServerToolUse `json:"server_tool_use"`
}

// CacheCreation counts the tokens written to the provider's cache.
type CacheCreation struct {
	FiveMinutes int64 `json:"ephemeral_5m_input_tokens"`
	OneHour     int64 `json:"ephemeral_1h_input_tokens"`
}

// ServerToolUse counts the uses of tools that are billed by the use.
type ServerToolUse struct {
	WebSearches int64 `json:"web_search_requests"`
	WebFetches  int64 `json:"web_fetch_requests"`
}

// NewUsageView is the session's usage at a time.
func NewUsageView(s *State, at time.Time) UsageView {
	v := usageView(s.Usage, s.RunningTime(at))
	if s.Usage.Unpriced == 0 {
		cost := dollars(s.CostAt(at).RoundedCents())
		v.ListCost = &cost
	}
	return v
}

func usageView(u Usage, active time.Duration) UsageView {
	return UsageView{
		Input: u.Input, Output: u.Output, CacheRead: u.CacheRead,
		CacheCreation: CacheCreation{FiveMinutes: u.CacheWrite5m, OneHour: u.CacheWrite1h},
		ActiveSeconds: seconds(active),
		ServerToolUse: ServerToolUse{WebSearches: u.WebSearches},
	}
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// Stats are a session's times as the wire has them.
type Stats struct {
	ActiveSeconds   float64 `json:"active_seconds"`
	DurationSeconds float64 `json:"duration_seconds"`
}

// ThreadStats are a thread's times as the wire has them.
type ThreadStats struct {
	ActiveSeconds   float64 `json:"active_seconds"`
	DurationSeconds float64 `json:"duration_seconds"`
	StartupSeconds  float64 `json:"startup_seconds"`
}

func (s *State) duration(at time.Time) float64 {
	if !s.Archived.IsZero() {
		at = s.Archived
	}
	return seconds(max(0, at.Sub(s.Config.Created)))
}

// View is a session as the wire has it.
type View struct {
	ID                 string            `json:"id"`
	Type               string            `json:"type"`
	Agent              jsontext.Value    `json:"agent"`
	Environment        string            `json:"environment_id"`
	Status             Status            `json:"status"`
	Title              *string           `json:"title"`
	Metadata           map[string]string `json:"metadata"`
	Resources          []jsontext.Value  `json:"resources"`
	Vaults             []string          `json:"vault_ids"`
	Budget             *BudgetView       `json:"budget"`
	Usage              UsageView         `json:"usage"`
	Stats              Stats             `json:"stats"`
	OutcomeEvaluations []OutcomeView     `json:"outcome_evaluations"`
	Deployment         *string           `json:"deployment_id"`
	Created            string            `json:"created_at"`
	Updated            string            `json:"updated_at"`
	Archived           *string           `json:"archived_at"`
}

// NewView is the session at a time.
func NewView(s *State, at time.Time) View {
	c := s.Config
	v := View{
		ID: c.ID, Type: "session", Agent: c.Agent, Environment: c.Environment, Status: s.Status,
		Title: c.Title, Metadata: c.Metadata, Resources: c.Resources, Vaults: c.Vaults,
		Budget: NewBudgetView(c), Usage: NewUsageView(s, at),
		Stats:   Stats{ActiveSeconds: seconds(s.RunningTime(at)), DurationSeconds: s.duration(at)},
		Created: c.Created.Format(TimeFormat), Updated: s.Updated.Format(TimeFormat), Archived: optionalTime(s.Archived),
	}
	if c.Deployment != "" {
		v.Deployment = &c.Deployment
	}
	// The wire has empty objects and lists, never null.
	if v.Metadata == nil {
		v.Metadata = map[string]string{}
	}
	if v.Resources == nil {
		v.Resources = []jsontext.Value{}
	}
	if v.Vaults == nil {
		v.Vaults = []string{}
	}
	v.OutcomeEvaluations = outcomeViews(s.Outcomes)
	return v
}

func optionalTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.Format(TimeFormat)
	return &s
}

// ThreadView is a thread as the wire has it.
type ThreadView struct {
	ID          string         `json:"id"`
	Type        string         `json:"type"`
	Session     string         `json:"session_id"`
	Parent      *string        `json:"parent_thread_id"`
	Agent       jsontext.Value `json:"agent"`
	Status      Status         `json:"status"`
	WorkflowRun *string        `json:"workflow_run_id"`
	Stats       *ThreadStats   `json:"stats"` // null until the first change of status
	Usage       *UsageView     `json:"usage"` // null until the first idle
	Created     string         `json:"created_at"`
	Updated     string         `json:"updated_at"`
	Archived    *string        `json:"archived_at"`
}

// NewThreadView is the primary thread at a time. Agent is the session's agent in the form that threads show.
func NewThreadView(s *State, agent jsontext.Value, at time.Time) ThreadView {
	c := s.Config
	v := ThreadView{
		ID: c.Thread, Type: "session_thread", Session: c.ID, Agent: agent, Status: s.Status,
		Created: c.Created.Format(TimeFormat), Updated: s.At.Format(TimeFormat), Archived: optionalTime(s.Archived),
	}
	if s.Begun {
		v.Stats = &ThreadStats{ActiveSeconds: seconds(s.RunningTime(at)), DurationSeconds: s.duration(at)}
	}
	if s.Paused {
		u := usageView(s.Usage, s.RunningTime(at))
		if s.Usage.Unpriced == 0 {
			cost := dollars(s.Usage.Cost.RoundedCents())
			u.ListCost = &cost
		}
		v.Usage = &u
	}
	return v
}

func blank(text string) bool { return strings.TrimSpace(text) == "" }
