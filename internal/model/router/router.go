package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/attempt"
	"github.com/perdure/perdure/internal/model/price"
	"github.com/perdure/perdure/internal/model/scripted"
)

const (
	// preferred is the model for a new user of Anthropic's API: good for agents, and not the most expensive.
	preferred = "claude-sonnet-5-5"
	// lastResort needs neither key nor server.
	lastResort = "scripted/demo"
	// listFor is how long a provider's list of models is kept, and failedFor how long the failure to get one is.
	listFor   = 5 * time.Minute
	failedFor = 30 * time.Second
)

// Router is a model.Provider that hands each request to the provider of its model. It is safe for concurrent use.
type Router struct {
	providers []*provider
	scripts   *scripted.Provider
	catalogue *price.Catalogue
	standard  string
}

var _ model.Provider = (*Router)(nil)

// server is what this package needs of a provider's adapter.
type server interface {
	model.Provider
	Models(ctx context.Context) ([]model.Info, error)
	Check(ctx context.Context) error
}

type provider struct {
	config   ProviderConfig
	server   server
	patterns []string

	mu     sync.Mutex // held while the list is fetched, so that it is fetched once
	listed []model.Info
	failed error
	at     time.Time // of the last attempt
}

// New makes a router. It makes no request.
func New(config Config) (*Router, error) {
	r := &Router{catalogue: config.Catalogue, standard: config.Default}
	var err error
	if config.Scripts == nil {
		if config.Scripts, err = scripted.Builtin(); err != nil {
			return nil, err
		}
	}
	r.scripts = scripted.New(config.Scripts)
	if r.catalogue == nil {
		if r.catalogue, err = price.Builtin(); err != nil {
			return nil, err
		}
	}
	client := config.HTTPClient
	if client == nil {
		client = attempt.NewClient()
	}
	for i, c := range config.Providers {
		p, err := c.provider(client)
		if err != nil {
			return nil, fmt.Errorf("model provider %d (%s): %w", i+1, c.Name, err)
		}
		if slices.ContainsFunc(r.providers, func(other *provider) bool { return other.config.Name == c.Name }) {
			return nil, fmt.Errorf("model provider %d: there is another one named %s", i+1, c.Name)
		}
		r.providers = append(r.providers, p)
	}
	return r, nil
}

// Route is where a model is served.
type Route struct {
	Provider string // the name of the provider
	Kind     Kind
	Model    string // the id that the provider knows the model by
	stream   model.Provider
}

// Resolve finds the provider of a model. The error is a *model.Error, for which no retry helps.
func (r *Router) Resolve(id string) (Route, error) {
	if strings.HasPrefix(id, scripted.Prefix) {
		return Route{Provider: string(Scripted), Kind: Scripted, Model: id, stream: r.scripts}, nil
	}
	if name, rest, ok := strings.Cut(id, "/"); ok && rest != "" {
		for _, p := range r.providers {
			if p.config.Name == name {
				return p.route(rest), nil
			}
		}
	}
	var best *provider
	longest := -1
	for _, p := range r.providers {
		for _, pattern := range p.patterns {
			if length := fits(pattern, id); length > longest {
				best, longest = p, length
			}
		}
	}
	if best == nil || id == "" {
		return Route{}, r.unknown(id)
	}
	return best.route(id), nil
}

func (p *provider) route(id string) Route {
	return Route{Provider: p.config.Name, Kind: p.config.Kind, Model: id, stream: p.server}
}

// fits is how much of the id a pattern names, -1 if it does not fit. An exact name counts for more than any pattern.
func fits(pattern, id string) int {
	prefix, open := strings.CutSuffix(pattern, "*")
	switch {
	case !open && pattern == id:
		return len(id) + 1
	case open && strings.HasPrefix(id, prefix):
		return len(prefix)
	}
	return -1
}

func (r *Router) unknown(id string) error {
	shown := scripted.Shown(id)
	advice := "set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own, or add a model provider to the configuration"
	if strings.HasPrefix(id, "claude-") {
		advice = "set ANTHROPIC_API_KEY, or add a model provider to the configuration"
	}
	var names []string
	for _, p := range r.providers {
		names = append(names, p.config.Name)
	}
	configured := "no provider is configured"
	if len(names) > 0 {
		configured = "the configured providers are " + strings.Join(names, ", ")
	}
	return &model.Error{Class: model.RequestFailed, Status: 404, Message: fmt.Sprintf(
		"no model provider serves %q (%s): %s; %s works without any", shown, configured, advice, lastResort)}
}

// Stream implements model.Provider.
func (r *Router) Stream(ctx context.Context, request model.Request, preview func(model.Delta)) (*model.Response, error) {
	route, err := r.Resolve(request.Model)
	if err != nil {
		return nil, err
	}
	request.Model = route.Model
	return route.stream.Stream(ctx, request, preview)
}

// Default is the model to use where none is named: the configured one, else one of the first provider that has one, else
// a scripted one. It may ask a provider for its list and then waits for the answer.
func (r *Router) Default(ctx context.Context) string {
	if r.standard != "" {
		return r.standard
	}
	for _, p := range r.providers {
		id := p.config.DefaultModel
		if id == "" && p.config.Kind == Anthropic {
			id = preferred
		}
		if id == "" {
			id = p.first(ctx)
		}
		if id == "" {
			continue
		}
		if route, err := r.Resolve(id); err == nil && route.Provider == p.config.Name && route.Model == id {
			return id
		}
		return p.config.Name + "/" + id
	}
	return lastResort
}

// notForChat are parts of the names of models that do not hold conversations.
var notForChat = []string{"embed", "whisper", "tts", "dall-e", "image", "moderation", "audio", "realtime", "transcribe", "search", "instruct", "davinci", "babbage", "sora", "rerank"}

// first is the first model of a provider's list that can hold a conversation; the newest, if the list has dates.
func (p *provider) first(ctx context.Context) string {
	infos, err := p.list(ctx)
	if err != nil {
		return "" // the next provider may do
	}
	var best *model.Info
	for i, info := range infos {
		if slices.ContainsFunc(notForChat, func(part string) bool { return strings.Contains(strings.ToLower(info.ID), part) }) {
			continue
		}
		if best == nil || info.CreatedAt.After(best.CreatedAt) {
			best = &infos[i]
		}
	}
	if best == nil {
		return ""
	}
	return best.ID
}

func (p *provider) list(ctx context.Context) ([]model.Info, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := time.Since(p.at)
	if !p.at.IsZero() && (p.failed == nil && age < listFor || p.failed != nil && age < failedFor) {
		return p.listed, p.failed
	}
	infos, err := p.server.Models(ctx)
	if ctx.Err() != nil {
		return nil, err // says nothing about the provider
	}
	p.listed, p.failed, p.at = infos, err, time.Now()
	return infos, err
}

// List returns all models under ids that Resolve takes. Lists of providers are kept for five minutes. If a provider
// cannot be asked, its models are missing, or for Anthropic's API come from the catalogue, and the error says why; the
// list is still good.
func (r *Router) List(ctx context.Context) ([]model.Info, error) {
	lists := make([][]model.Info, len(r.providers))
	problems := make([]error, len(r.providers))
	var wait sync.WaitGroup
	for i, p := range r.providers {
		wait.Go(func() {
			if lists[i], problems[i] = p.list(ctx); problems[i] != nil {
				problems[i] = fmt.Errorf("models of %s: %w", p.config.Name, problems[i])
				if p.config.Kind == Anthropic {
					lists[i] = r.known()
				}
			}
		})
	}
	wait.Wait()
	var all []model.Info
	for i, p := range r.providers {
		for _, info := range lists[i] {
			if route, err := r.Resolve(info.ID); err != nil || route.Provider != p.config.Name || route.Model != info.ID {
				info.ID = p.config.Name + "/" + info.ID
			}
			all = append(all, info)
		}
	}
	for _, script := range r.scripts.Library().Scripts() {
		name := script.Description
		if name == "" {
			name = script.Name
		}
		all = append(all, model.Info{ID: scripted.Prefix + script.Name, DisplayName: "Scripted: " + model.Shorten(name, 80)})
	}
	return all, errors.Join(problems...)
}

// known are Anthropic's models as the catalogue has them.
func (r *Router) known() []model.Info {
	var infos []model.Info
	for _, m := range r.catalogue.Models() {
		if strings.HasPrefix(m.ID, "claude-") {
			infos = append(infos, model.Info{ID: m.ID, DisplayName: m.DisplayName, CreatedAt: m.Released})
		}
	}
	return infos
}

// Status is what a check of a provider found.
type Status struct {
	Provider string
	Kind     Kind
	BaseURL  string // "" for the official server
	Err      error  // nil if the server answers and takes the key
}

// Check asks every provider, at the same time, for something that costs nothing.
func (r *Router) Check(ctx context.Context) []Status {
	statuses := make([]Status, len(r.providers))
	var wait sync.WaitGroup
	for i, p := range r.providers {
		wait.Go(func() {
			statuses[i] = Status{Provider: p.config.Name, Kind: p.config.Kind, BaseURL: p.config.BaseURL, Err: p.server.Check(ctx)}
		})
	}
	wait.Wait()
	return statuses
}
