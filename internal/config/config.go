// Package config is the settings of a Perdure server: one struct, filled from its defaults, then a strict YAML file, then
// the environment. What the command line sets is applied after that, by the command.
//
// The file is named by --config or PERDURE_CONFIG, or is perdure.yaml in the data directory if that exists. A key that is
// not known, or is given twice, is an error that names the line. An environment variable that is set to nothing counts as
// not set. One that begins with PERDURE_ and is not known is told as a warning, since it is most likely a typing error.
//
// Secrets come from the environment, from a file that a variable with _FILE names, or from the configuration file. They
// have a type that prints as a placeholder, and no error of this package quotes one.
package config

import (
	"net/netip"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Config is everything that can be set. The environment variable of a field stands in its env tag, after PERDURE_.
type Config struct {
	// Data is the data directory. It is made if it is missing. Default: ~/.perdure.
	Data string `yaml:"data" env:"DATA"`
	// Listen is the address that the server listens on, host:port. Port 0 takes a free one. Default: 127.0.0.1:8700.
	Listen string `yaml:"listen" env:"LISTEN"`
	// Sandbox is how tools are kept away from the host: native, or none to run them without isolation.
	// Default: native.
	Sandbox string `yaml:"sandbox" env:"SANDBOX"`
	// Providers serve models. ANTHROPIC_API_KEY adds one named anthropic, and OPENAI_API_KEY or OPENAI_BASE_URL one
	// named openai, unless the file has a provider of that name. Default: none, and then the scripted models are all.
	Providers []Provider `yaml:"providers"`
	// DefaultModel is the model for agents that name none. Default: the choice is left to the providers.
	DefaultModel string `yaml:"default_model" env:"DEFAULT_MODEL"`
	// ScriptsDir holds scripts of scripted models, *.yaml, beside the built-in ones. Default: none.
	ScriptsDir string `yaml:"scripts_dir" env:"SCRIPTS_DIR"`
	// PricesFile adds to or replaces entries of the built-in price table. Default: none.
	PricesFile string `yaml:"prices_file" env:"PRICES_FILE"`
	// RuntimeCentsPerHour is the list price in US cents of an hour in which a session runs; 0 makes it free. Default: 8.
	RuntimeCentsPerHour *float64 `yaml:"runtime_cents_per_hour" env:"RUNTIME_CENTS_PER_HOUR"`
	// AllowNetworks are address ranges (10.1.0.0/16) that web_fetch and sandboxes may reach although they are not
	// public. Default: none.
	AllowNetworks []netip.Prefix `yaml:"allow_networks" env:"ALLOW_NETWORKS"`
	// SearchURL is a SearXNG instance with its JSON format enabled, which web_search asks. Default: none, and then
	// web_search says that it cannot be used.
	SearchURL string `yaml:"search_url" env:"SEARCH_URL"`
	// Retry bounds the attempts of a model request.
	Retry Retry `yaml:"retry" envPrefix:"RETRY_"`
	// RequestsPerTurn bounds the model's answers in one turn, from 1 to 100000. Default: 500.
	RequestsPerTurn int `yaml:"requests_per_turn" env:"REQUESTS_PER_TURN"`
	// Log is what operators are told.
	Log Log `yaml:"log" envPrefix:"LOG_"`
}

// Provider is a server of models.
type Provider struct {
	// Name is unique among the providers. A model can be asked for as name/model.
	Name string `yaml:"name"`
	// Kind is the API that it speaks: anthropic or openai (any server that is compatible with Chat Completions).
	Kind string `yaml:"kind"`
	// BaseURL is where it is. Default: that of the kind.
	BaseURL string `yaml:"base_url,omitempty"`
	// APIKey is its key. Required for anthropic; a local server of kind openai may need none.
	APIKey model.Secret `yaml:"api_key,omitempty"`
	// APIKeyFile is a file that holds the key, in place of api_key.
	APIKeyFile string `yaml:"api_key_file,omitempty"`
	// Models are the ids that it serves, each exact or with an asterisk at its end. Default: claude-* for anthropic,
	// all others for openai.
	Models []string `yaml:"models,omitempty"`
	// DefaultModel is its model for agents that name none. Default: the server chooses.
	DefaultModel string `yaml:"default_model,omitempty"`
}

// Retry bounds the attempts of a model request.
type Retry struct {
	// Attempts in a row, the first included, from 1 to 100. Default: 6.
	Attempts int `yaml:"attempts" env:"ATTEMPTS"`
	// Base is the pause after the first failure; it doubles with each. Default: 1s.
	Base time.Duration `yaml:"base" env:"BASE"`
	// Cap is the longest pause that the provider did not ask for. Default: 60s.
	Cap time.Duration `yaml:"cap" env:"CAP"`
}

// Log is what operators are told, on standard error.
type Log struct {
	// Level is debug, info, warn or error. Default: info.
	Level string `yaml:"level" env:"LEVEL"`
	// Format is text, json, or auto: text on a terminal, else json. Default: auto.
	Format string `yaml:"format" env:"FORMAT"`
}

// WithDefaults returns a copy in which what was left out has its default. The default of Data needs the home directory,
// so Load sets it.
func (c Config) WithDefaults() Config {
	d := c
	d.Providers = slices.Clone(c.Providers)
	for i, p := range d.Providers {
		d.Providers[i].Models = slices.Clone(p.Models)
	}
	d.AllowNetworks = slices.Clone(c.AllowNetworks)
	rate := 8.0
	if c.RuntimeCentsPerHour != nil {
		rate = *c.RuntimeCentsPerHour
	}
	d.RuntimeCentsPerHour = &rate
	fill(&d.Listen, "127.0.0.1:8700")
	fill(&d.Sandbox, "native")
	fill(&d.RequestsPerTurn, 500)
	fill(&d.Retry.Attempts, 6)
	fill(&d.Retry.Base, time.Second)
	fill(&d.Retry.Cap, time.Minute)
	fill(&d.Log.Level, "info")
	fill(&d.Log.Format, "auto")
	return d
}

func fill[T comparable](field *T, fallback T) {
	var zero T
	if *field == zero {
		*field = fallback
	}
}
