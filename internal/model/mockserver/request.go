package mockserver

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// bytesPerToken is the usual rough measure.
const bytesPerToken = 4

type message struct {
	Role    string         `json:"role"`
	Content jsontext.Value `json:"content"`
}

// request is the body of POST /v1/messages. What is not needed stays raw.
type request struct {
	Model         string           `json:"model"`
	MaxTokens     int64            `json:"max_tokens"`
	Messages      []message        `json:"messages"`
	System        jsontext.Value   `json:"system"`
	Tools         []jsontext.Value `json:"tools"`
	Stream        bool             `json:"stream"`
	Metadata      metadata         `json:"metadata"`
	OutputConfig  outputConfig     `json:"output_config"`
	Speed         string           `json:"speed"`
	Thinking      jsontext.Value   `json:"thinking"`
	ToolChoice    jsontext.Value   `json:"tool_choice"`
	CacheControl  jsontext.Value   `json:"cache_control"`
	Container     jsontext.Value   `json:"container"`
	Diagnostics   jsontext.Value   `json:"diagnostics"`
	InferenceGeo  *string          `json:"inference_geo"`
	ServiceTier   *string          `json:"service_tier"`
	StopSequences []string         `json:"stop_sequences"`
	Temperature   *float64         `json:"temperature"`
	TopK          *int64           `json:"top_k"`
	TopP          *float64         `json:"top_p"`

	size int // of the body in bytes
}

type metadata struct {
	UserID string `json:"user_id"`
}

type outputConfig struct {
	Effort     string         `json:"effort"`
	Format     jsontext.Value `json:"format"`
	TaskBudget jsontext.Value `json:"task_budget"`
}

func (s *Server) parse(body []byte) (*request, *Refusal) {
	parsed := &request{size: len(body)}
	options := json.RejectUnknownMembers(s.config.Strict)
	if s.config.Strict {
		if refusal := checkJSON(body); refusal != nil {
			return nil, refusal
		}
	} else {
		options = json.JoinOptions(options, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	}
	if err := json.Unmarshal(body, parsed, options); err != nil {
		return nil, invalid("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if s.config.Strict {
		c := &checker{request: parsed}
		c.run(s.config)
		if c.refusal != nil {
			return nil, c.refusal
		}
	}
	return parsed, nil
}

func checkJSON(body []byte) *Refusal {
	if jsontext.Value(body).IsValid() {
		return nil
	}
	// The reason is what a decoder says; a valid value cannot fail here.
	var value jsontext.Value
	if err := json.Unmarshal(body, &value); err != nil {
		return invalid("the body is not valid JSON: %v", err)
	}
	return invalid("the body is not valid JSON")
}

func (r *request) promptTokens() int64 { return int64(r.size / bytesPerToken) }

// systemText is the system prompt, which may be a string or an array of text blocks.
func (r *request) systemText() string {
	var text string
	for _, block := range systemBlocks(r.System) {
		var parsed struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(block, &parsed) == nil {
			if text != "" {
				text += "\n"
			}
			text += parsed.Text
		}
	}
	return text
}

func systemBlocks(system jsontext.Value) []jsontext.Value {
	switch system.Kind() {
	case '"':
		return []jsontext.Value{jsontext.Value(`{"type":"text","text":` + string(system) + `}`)}
	case '[':
		var blocks []jsontext.Value
		if json.Unmarshal(system, &blocks) == nil {
			return blocks
		}
	}
	return nil
}
