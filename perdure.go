// Package perdure is the session server for long-running AI agents, to run or to embed.
//
// A Server keeps its sessions in a data directory. Handler serves the API; Run drives the sessions. Both may be used at
// once, and a Server that is opened on the directory of one that died goes on where that one was.
//
//	server, err := perdure.Open(ctx, perdure.Options{Dir: "/var/lib/perdure"})
//	if err != nil { … }
//	defer server.Close()
//	go server.Run(ctx)
//	http.ListenAndServe("127.0.0.1:8700", server.Handler())
package perdure

import (
	"log/slog"
	"net/netip"
	"time"
)

// Options says how a server is made. Only Dir is required.
type Options struct {
	// Dir is the data directory. It is made if it is missing. One process at a time may use it.
	Dir string
	// Providers serve models. Scripted models are always there.
	Providers []Provider
	// ScriptsDir holds scripts of scripted models beside the built-in ones, *.yaml; "" for none.
	ScriptsDir string
	// DefaultModel is what DefaultModel answers; "" leaves the choice to the providers.
	DefaultModel string
	// PricesFile adds to or replaces entries of the built-in price table; "" for none.
	PricesFile string
	// RuntimeCentsPerHour is the list price of an hour of running; 0 takes 8. Negative makes running time free.
	RuntimeCentsPerHour float64
	// Sandbox is native (the default) or none: tools then run on this host without isolation.
	Sandbox string
	// AllowNetworks are address ranges that web_fetch and the sandbox's proxy may reach although they are not public.
	AllowNetworks []netip.Prefix
	// SearchURL is a SearXNG instance, which web_search asks; "" for none, and then web_search says that it cannot be used.
	SearchURL string
	// Retry bounds the attempts of a model request.
	Retry Retry
	// RequestsPerTurn bounds the model's answers in one turn; 0 takes 500.
	RequestsPerTurn int
	// Log receives what operators should know; nil discards it.
	Log *slog.Logger
	// Version is the server's own, as it tells others; "" for a development build.
	Version string
}

// Provider is a server of models.
type Provider struct {
	Name    string // unique; models can be asked for as name/model
	Kind    string // anthropic | openai
	BaseURL string // "" takes the kind's own
	APIKey  string // a secret
	// Models are the ids that this provider serves, each exact or with an asterisk at its end; nil takes the kind's usual
	// ones: claude-* of an anthropic provider, everything else of an openai one.
	Models []string
	// DefaultModel is the model for agents that name none; "" leaves the choice to the server.
	DefaultModel string
}

// Retry bounds the attempts of a model request. Zero fields take the defaults.
type Retry struct {
	Attempts int           // in a row, with the first; default 6
	Base     time.Duration // the wait after the first failure, doubled after each; default 1 s
	Cap      time.Duration // the longest wait that the provider did not ask for; default 60 s
}
