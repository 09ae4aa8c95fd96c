// Package tool is what a session's tools are to the model and to the runner: how they are offered, what may run, and what
// may be run twice.
package tool

import (
	"fmt"

	"github.com/anthropics/anthropic-sdk-go/v2/tools/agenttoolset"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/tool/web"
)

// Place says where a tool runs.
type Place int

// The places.
const (
	Nowhere Place = iota // there is no such tool, or it is not enabled
	Sandbox              // in the session's sandbox
	Server               // here: the web tools
	Client               // whoever uses the API answers
)

// Set is the tools of one agent in one environment.
type Set struct {
	agent      *resource.AgentConfig
	selfHosted bool
	offered    []model.Tool
}

// repeatable are the tools that change nothing, so that a call whose outcome was lost is run again.
var repeatable = map[string]bool{
	resource.Read: true, resource.Glob: true, resource.Grep: true, resource.WebFetch: true, resource.WebSearch: true,
}

// builtins are the definitions of the tools that run in the sandbox, as the official toolset gives them.
var builtins = func() map[string]model.Tool {
	definitions := map[string]model.Tool{}
	tools := agenttoolset.BetaAgentToolset20260401(&agenttoolset.AgentToolContext{Workdir: "/workspace"})
	defer agenttoolset.CloseAll(tools)
	for _, t := range tools {
		schema, err := json.Marshal(t.InputSchema(), json.Deterministic(true))
		if err != nil {
			panic(fmt.Sprintf("tool: the schema of %s: %v", t.Name(), err))
		}
		definitions[t.Name()] = model.Tool{Name: t.Name(), Description: t.Description(), InputSchema: schema}
	}
	return definitions
}()

// NewSet makes the tools of an agent. On a self-hosted environment the built-in tools run on the owner's machines.
func NewSet(agent *resource.AgentConfig, selfHosted bool) *Set {
	s := &Set{agent: agent, selfHosted: selfHosted}
	for _, config := range agent.EnabledBuiltins() {
		switch config.Name {
		case resource.WebFetch:
			s.offered = append(s.offered, model.Tool(web.FetchDefinition()))
		case resource.WebSearch:
			s.offered = append(s.offered, model.Tool(web.SearchDefinition()))
		default:
			s.offered = append(s.offered, builtins[config.Name])
		}
	}
	for _, t := range agent.CustomTools() {
		s.offered = append(s.offered, model.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema})
	}
	return s
}

// Offered are the tools as the model is offered them. The order and the bytes are those of every turn.
func (s *Set) Offered() []model.Tool { return s.offered }

// Place says where a tool of this name runs.
func (s *Set) Place(name string) Place {
	kind, enabled, _ := s.agent.ToolPolicy(name)
	switch {
	case !enabled:
		return Nowhere
	case kind == resource.KindCustom:
		return Client
	case kind != resource.KindToolset:
		return Nowhere
	case name == resource.WebFetch || name == resource.WebSearch:
		return Server
	case s.selfHosted:
		return Client
	default:
		return Sandbox
	}
}

// Repeatable reports whether a call of this tool may be run again when it is not known whether it ran.
func (s *Set) Repeatable(name string) bool { return repeatable[name] }

// The ways in which a permission is found, as the wire has them.
var (
	evaluationAllow   = jsontext.Value(`{"type":"always_allow"}`)
	evaluationAsk     = jsontext.Value(`{"type":"always_ask"}`)
	evaluationAuto    = jsontext.Value(`{"type":"auto","evaluated_permission":{"type":"allow"}}`)
	evaluationAutoAsk = jsontext.Value(`{"type":"auto","evaluated_permission":{"type":"ask","reason_code":"indeterminate"}}`)
)

// Judge says what becomes of a call that the model made: who runs it and whether somebody is asked first. The policy auto
// allows what changes nothing outside the conversation and asks about everything else.
func (s *Set) Judge(name string, input jsontext.Value) session.AnswerCall {
	call := session.AnswerCall{Type: session.AgentToolUse, Name: name, Input: input}
	kind, _, policy := s.agent.ToolPolicy(name)
	place := s.Place(name)
	switch {
	case kind == resource.KindCustom:
		call.Type, call.Remote = session.AgentCustomToolUse, true
		return call
	case place == Nowhere:
		call.Permission = "deny"
		return call
	}
	call.Remote = place == Client
	switch policy {
	case resource.AlwaysAllow:
		call.Permission, call.Evaluation = "allow", evaluationAllow
	case resource.Auto:
		call.Permission, call.Evaluation = "ask", evaluationAutoAsk
		if name == resource.Read || name == resource.Glob || name == resource.Grep {
			call.Permission, call.Evaluation = "allow", evaluationAuto
		}
	default:
		call.Permission, call.Evaluation = "ask", evaluationAsk
	}
	return call
}
