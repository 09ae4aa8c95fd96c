package resource

import "github.com/go-json-experiment/json/jsontext"

// Session is a session as served. Agent is an AgentSnapshot and each resource a FileResource, kept as the log has them so
// that reading a session never rewrites them.
type Session struct {
	ID                 string              `json:"id"`
	Type               string              `json:"type"` // session
	Agent              jsontext.Value      `json:"agent"`
	EnvironmentID      string              `json:"environment_id"`
	Status             string              `json:"status"` // idle | running | rescheduling | terminated
	Title              *string             `json:"title"`
	Metadata           Metadata            `json:"metadata"`
	Resources          []jsontext.Value    `json:"resources"`
	VaultIDs           []string            `json:"vault_ids"`
	Budget             *Budget             `json:"budget"`
	Usage              SessionUsage        `json:"usage"`
	Stats              SessionStats        `json:"stats"`
	OutcomeEvaluations []OutcomeEvaluation `json:"outcome_evaluations"`
	DeploymentID       *string             `json:"deployment_id"`
	CreatedAt          Time                `json:"created_at"`
	UpdatedAt          Time                `json:"updated_at"`
	ArchivedAt         *Time               `json:"archived_at"`
}

// SessionUsage is what a session has used.
type SessionUsage struct {
	InputTokens          int64          `json:"input_tokens"` // not counting the cache
	OutputTokens         int64          `json:"output_tokens"`
	CacheReadInputTokens int64          `json:"cache_read_input_tokens"`
	CacheCreation        *CacheCreation `json:"cache_creation"`
	ActiveSeconds        float64        `json:"active_seconds"` // with at least one thread running
	ListCost             Money          `json:"list_cost"`      // rounded to the nearest cent
	ServerToolUse        ServerToolUse  `json:"server_tool_use"`
}

// CacheCreation counts the tokens that were written to a provider's cache.
type CacheCreation struct {
	Ephemeral5mInputTokens int64 `json:"ephemeral_5m_input_tokens"`
	Ephemeral1hInputTokens int64 `json:"ephemeral_1h_input_tokens"`
}

// ServerToolUse counts calls of tools that the server ran. Fetches are free and not counted: always 0.
type ServerToolUse struct {
	WebSearchRequests int64 `json:"web_search_requests"`
	WebFetchRequests  int64 `json:"web_fetch_requests"`
}

// SessionStats are times in seconds.
type SessionStats struct {
	ActiveSeconds   float64 `json:"active_seconds"`   // the sum of each thread's running time
	DurationSeconds float64 `json:"duration_seconds"` // since creation, until the session ended
}

// OutcomeEvaluation is how far the session is with an outcome that was asked for.
type OutcomeEvaluation struct {
	Type        string  `json:"type"` // outcome_evaluation
	OutcomeID   string  `json:"outcome_id"`
	Description string  `json:"description"`
	Iteration   int64   `json:"iteration"`
	Result      string  `json:"result"`
	Explanation *string `json:"explanation"`
	CompletedAt *Time   `json:"completed_at"`
}
