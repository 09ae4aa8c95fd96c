package perdure

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/price"
	"github.com/perdure/perdure/internal/model/router"
	"github.com/perdure/perdure/internal/model/scripted"
	"github.com/perdure/perdure/internal/session"
)

// models is all the models of a server, with what they cost.
type models struct {
	*router.Router
	catalogue *price.Catalogue
	log       *slog.Logger
}

func openModels(o Options) (*models, error) {
	catalogue, err := price.Builtin()
	if err != nil {
		return nil, err
	}
	if o.PricesFile != "" {
		file, err := os.ReadFile(o.PricesFile)
		if err != nil {
			return nil, fmt.Errorf("perdure: read the price table: %w", err)
		}
		if catalogue, err = catalogue.Extended(file); err != nil {
			return nil, fmt.Errorf("perdure: price table %s: %w", o.PricesFile, err)
		}
	}
	scripts, err := scripted.Builtin()
	if err != nil {
		return nil, err
	}
	if o.ScriptsDir != "" {
		if err := scripts.Load(os.DirFS(o.ScriptsDir)); err != nil {
			return nil, fmt.Errorf("perdure: load scripts: %w", err)
		}
	}
	config := router.Config{Scripts: scripts, Catalogue: catalogue, Default: o.DefaultModel}
	for _, p := range o.Providers {
		config.Providers = append(config.Providers, router.ProviderConfig{
			Name: p.Name, Kind: router.Kind(p.Kind), BaseURL: p.BaseURL, APIKey: model.Secret(p.APIKey),
			Models: p.Models, DefaultModel: p.DefaultModel,
		})
	}
	r, err := router.New(config)
	if err != nil {
		return nil, fmt.Errorf("perdure: model providers: %w", err)
	}
	return &models{Router: r, catalogue: catalogue, log: o.Log}, nil
}

// Cost is the list cost of what a request used.
func (m *models) Cost(id, geo string, usage model.Usage) (session.Cost, bool) {
	return m.catalogue.Cost(id, usage, price.Terms{USOnly: geo == "us"})
}

// DefaultEffort is the effort of a model for which none is given.
func (m *models) DefaultEffort(id string) string {
	if known := m.catalogue.Lookup(id); known != nil {
		return known.DefaultEffort
	}
	return ""
}

// TakesSystemMessages reports whether a model takes system messages in the middle of a conversation. Those of servers that
// are not Anthropic's get them in another form.
func (m *models) TakesSystemMessages(id string) bool {
	route, err := m.Resolve(id)
	if err != nil || route.Kind != router.Anthropic {
		return true
	}
	known := m.catalogue.Lookup(route.Model)
	return known == nil || known.SystemMessages
}

// Priced reports whether a model has a list price.
func (m *models) Priced(id string) bool {
	known := m.catalogue.Lookup(id)
	return known != nil && known.Priced()
}

// List returns the models that can be used. Those of a provider that cannot be asked may be missing.
func (m *models) List(ctx context.Context) []model.Info {
	list, err := m.Router.List(ctx)
	if err != nil && ctx.Err() == nil {
		m.log.Warn("a model provider could not say which models it has", "error", err)
	}
	return list
}

// DefaultModel is the model to use where none is named. It may ask a provider, and then waits for the answer.
func (s *Server) DefaultModel(ctx context.Context) string { return s.models.Default(ctx) }
