package router

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/anthropic"
	"github.com/perdure/perdure/internal/model/attempt"
	"github.com/perdure/perdure/internal/model/openai"
	"github.com/perdure/perdure/internal/model/price"
	"github.com/perdure/perdure/internal/model/scripted"
)

// Kind is the API that a provider speaks.
type Kind string

// The kinds.
const (
	Anthropic Kind = "anthropic"
	OpenAI    Kind = "openai"
	Scripted  Kind = "scripted"
)

// Config says which providers there are.
type Config struct {
	Providers []ProviderConfig
	// Scripts are the scripts of the scripted provider, which is always there; nil stands for the built-in ones.
	Scripts *scripted.Library
	// Catalogue names models for which a provider's own list cannot be had; nil stands for the built-in one.
	Catalogue *price.Catalogue
	// Default is the model to use where none is named; "" leaves the choice to Router.Default.
	Default string
	// HTTPClient is used for all providers; nil stands for attempt.NewClient.
	HTTPClient *http.Client
}

// ProviderConfig is one server.
type ProviderConfig struct {
	// Name is what its models can be called by: <name>/<model>. Lower-case letters, digits and dashes.
	Name string `yaml:"name"`
	Kind Kind   `yaml:"kind"` // anthropic or openai
	// BaseURL is the server; "" stands for that of Anthropic or OpenAI.
	BaseURL   string       `yaml:"base_url"`
	APIKey    model.Secret `yaml:"api_key"`
	AuthToken model.Secret `yaml:"auth_token"` // anthropic only: a bearer token in place of the key
	// Models are the ids that it serves, each exact or with an asterisk at its end.
	Models []string `yaml:"models"`
	// DefaultModel is the model that Router.Default takes from this provider; "" leaves the choice to the router.
	DefaultModel string `yaml:"default_model"`
	// CacheTTL is how long Anthropic keeps prompts: 5m or 1h.
	CacheTTL string `yaml:"cache_ttl"`
	// DropReasoning keeps a model's earlier reasoning out of requests, for OpenAI-compatible servers that refuse it.
	DropReasoning bool           `yaml:"drop_reasoning"`
	Limits        attempt.Limits `yaml:"limits"`
}

// FromEnvironment reads the providers from environment variables. The package documentation lists them.
func FromEnvironment(getenv func(string) string) Config {
	get := func(name string) string { return strings.TrimSpace(getenv(name)) }
	var config Config
	key, token := model.Secret(get("ANTHROPIC_API_KEY")), model.Secret(get("ANTHROPIC_AUTH_TOKEN"))
	if key != "" || token != "" {
		config.Providers = append(config.Providers, ProviderConfig{
			Name: "anthropic", Kind: Anthropic, BaseURL: get("ANTHROPIC_BASE_URL"), APIKey: key, AuthToken: token,
		})
	}
	key = model.Secret(get("OPENAI_API_KEY"))
	if url := get("OPENAI_BASE_URL"); key != "" || url != "" {
		config.Providers = append(config.Providers, ProviderConfig{
			Name: "openai", Kind: OpenAI, BaseURL: url, APIKey: key, DefaultModel: get("OPENAI_MODEL"),
		})
	}
	return config
}

var (
	nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	// standardPatterns are what a provider serves that does not say.
	standardPatterns = map[Kind][]string{Anthropic: {"claude-*"}, OpenAI: {"*"}}
)

// provider makes the provider of a configuration.
func (c ProviderConfig) provider(client *http.Client) (*provider, error) {
	if !nameForm.MatchString(c.Name) {
		return nil, fmt.Errorf("the name %q must be made of lower-case letters, digits and dashes, and be at most 64 characters long", c.Name)
	}
	if c.Name == string(Scripted) {
		return nil, errors.New("the name scripted is that of the scripted models")
	}
	p := &provider{config: c, patterns: c.Models}
	if len(p.patterns) == 0 {
		p.patterns = standardPatterns[c.Kind]
	}
	for _, pattern := range p.patterns {
		if strings.Contains(strings.TrimSuffix(pattern, "*"), "*") || pattern == "" {
			return nil, fmt.Errorf("the pattern %q can have an asterisk only at its end", pattern)
		}
	}
	var err error
	switch c.Kind {
	case Anthropic:
		p.server, err = anthropic.New(anthropic.Config{BaseURL: c.BaseURL, APIKey: c.APIKey, AuthToken: c.AuthToken,
			HTTPClient: client, CacheTTL: c.CacheTTL, Limits: c.Limits})
	case OpenAI:
		p.server, err = openai.New(openai.Config{BaseURL: c.BaseURL, APIKey: c.APIKey, HTTPClient: client,
			DropReasoning: c.DropReasoning, Limits: c.Limits})
	default:
		err = fmt.Errorf("kind is %q, it must be anthropic or openai", c.Kind)
	}
	return p, err
}
