package session

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Status of a session or a thread, as on the wire.
type Status string

// The statuses.
const (
	Idle         Status = "idle"
	Running      Status = "running"
	Rescheduling Status = "rescheduling"
	Terminated   Status = "terminated"
)

// Deleted is the status of the row of a session that is about to be erased. Clients never see it.
const Deleted Status = "deleted"

// Types of public events that this package makes or reads.
const (
	UserMessage          = "user.message"
	UserInterrupt        = "user.interrupt"
	UserToolConfirmation = "user.tool_confirmation"
	UserCustomToolResult = "user.custom_tool_result"
	UserToolResult       = "user.tool_result"
	UserDefineOutcome    = "user.define_outcome"
	SystemMessage        = "system.message"

	AgentMessage       = "agent.message"
	AgentThinking      = "agent.thinking"
	AgentToolUse       = "agent.tool_use"
	AgentToolResult    = "agent.tool_result"
	AgentMCPToolUse    = "agent.mcp_tool_use"
	AgentMCPToolResult = "agent.mcp_tool_result"
	AgentCustomToolUse = "agent.custom_tool_use"

	StatusRunning           = "session.status_running"
	StatusIdle              = "session.status_idle"
	StatusRescheduled       = "session.status_rescheduled"
	StatusTerminated        = "session.status_terminated"
	ThreadStatusRunning     = "session.thread_status_running"
	ThreadStatusIdle        = "session.thread_status_idle"
	ThreadStatusRescheduled = "session.thread_status_rescheduled"
	ThreadStatusTerminated  = "session.thread_status_terminated"
	SessionError            = "session.error"
	SessionUsage            = "session.usage"
	SessionUpdated          = "session.updated"
	SessionDeleted          = "session.deleted"

	ModelRequestStart = "span.model_request_start"
	ModelRequestEnd   = "span.model_request_end"
)

// Types of entries that only we see.
const (
	created          = "perdure.created"           // the first entry of each log; private: Config
	resourcesChanged = "perdure.resources_changed" // private: the list of resources
	opaqueBlock      = "perdure.block"             // a block of the model's answer that has no event of its own
)

// EventTypes are the types that a list of events can be filtered by.
var EventTypes = []string{
	UserMessage, UserInterrupt, UserToolConfirmation, UserCustomToolResult, UserToolResult, UserDefineOutcome, SystemMessage,
	AgentMessage, AgentThinking, AgentToolUse, AgentToolResult, AgentMCPToolUse, AgentMCPToolResult, AgentCustomToolUse,
	"agent.thread_message_sent", "agent.thread_message_received", "agent.thread_context_compacted",
	StatusRunning, StatusIdle, StatusRescheduled, StatusTerminated,
	"session.thread_created", ThreadStatusRunning, ThreadStatusIdle, ThreadStatusRescheduled, ThreadStatusTerminated,
	SessionError, SessionUsage, SessionUpdated, SessionDeleted,
	ModelRequestStart, ModelRequestEnd,
	"span.outcome_evaluation_start", "span.outcome_evaluation_ongoing", "span.outcome_evaluation_end",
	"workflow_run.created", "workflow_run.status_running", "workflow_run.status_idle", "workflow_run.phase_started",
	"workflow_run.phase_ended", "workflow_run.error", "workflow_run.status_ended",
}

// KnownEventType reports whether a list of events can be filtered by this type.
func KnownEventType(t string) bool { return slices.Contains(EventTypes, t) }

// StopReason says why a session is idle.
type StopReason struct {
	Type     string   `json:"type"`
	EventIDs []string `json:"event_ids,omitzero"` // the calls that wait for the client, with requires_action
}

// The types of StopReason.
const (
	EndTurn          = "end_turn"
	RequiresAction   = "requires_action"
	RetriesExhausted = "retries_exhausted"
	BudgetReached    = "budget_reached"
	Refusal          = "refusal"
)

// Config is the part of a session that only its owner changes.
type Config struct {
	ID           string         `json:"id"`
	Thread       string         `json:"thread"` // id of the primary thread
	Agent        jsontext.Value `json:"agent"`  // the agent as it was, as served in the session
	AgentID      string         `json:"agent_id"`
	AgentVersion int64          `json:"agent_version"`
	AgentName    string         `json:"agent_name"`
	Environment  string         `json:"environment"`
	// SelfHosted says that the built-in tools run on the owner's machines, so that their results come from a client.
	SelfHosted bool              `json:"self_hosted,omitzero"`
	Title      *string           `json:"title"`
	Metadata   map[string]string `json:"metadata"`
	Resources  []jsontext.Value  `json:"resources"`
	Vaults     []string          `json:"vaults"`
	// BudgetCents is the most that the session may cost in US cents; 0 for no bound.
	BudgetCents int64     `json:"budget_cents,omitzero"`
	Deployment  string    `json:"deployment,omitzero"`
	Created     time.Time `json:"created"`
	// RuntimeRate is what an hour of running costs.
	RuntimeRate Cost `json:"runtime_rate"`
}

// Budgeted reports whether the session has a budget.
func (c *Config) Budgeted() bool { return c.BudgetCents > 0 }

// Call is a tool call of the model's last answer.
type Call struct {
	ID   string `json:"id"`   // of its event; this is also the id that the model is shown
	Type string `json:"type"` // the type of its event
	Name string `json:"name"`
	// Permission is allow | ask | deny. A custom call has none.
	Permission string `json:"permission,omitzero"`
	// Confirmed is allow | deny once a client has decided about a call with permission ask; "" until then.
	Confirmed   string `json:"confirmed,omitzero"`
	DenyMessage string `json:"deny_message,omitzero"`
	// Answered says that the log has the result.
	Answered bool `json:"answered,omitzero"`
	// Remote says that a client runs it.
	Remote bool `json:"remote,omitzero"`
	// Input is the call's input as the model wrote it.
	Input jsontext.Value `json:"input,omitzero"`
}

// Waiting reports whether the call cannot go on without a client.
func (c Call) Waiting() bool {
	switch {
	case c.Answered:
		return false
	case c.Permission == "ask" && c.Confirmed == "":
		return true
	case c.Permission == "deny" || c.Confirmed == "deny":
		return false
	default:
		return c.Remote
	}
}

// Runnable reports whether the call is for the server to run.
func (c Call) Runnable() bool {
	return !c.Answered && !c.Remote && (c.Permission == "allow" || c.Confirmed == "allow")
}

// Refused reports whether the call must not run, and lacks the result that says so.
func (c Call) Refused() bool {
	return !c.Answered && (c.Permission == "deny" || c.Confirmed == "deny")
}

// Queued is an input that was accepted and waits.
type Queued struct {
	Seq     int64          `json:"seq"`
	ID      string         `json:"id"`
	Type    string         `json:"type"`
	Content jsontext.Value `json:"content,omitzero"`
	Thread  string         `json:"thread,omitzero"` // an interrupt that names a thread
}

// Attempt is a model request that was begun and has not ended.
type Attempt struct {
	ID string    `json:"id"` // of the event that began it
	At time.Time `json:"at"`
}
