package perdure

import (
	"context"
	"fmt"
	"os"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/price"
	"github.com/perdure/perdure/internal/model/scripted"
	"github.com/perdure/perdure/internal/session"
)

// models is all the models of a server, with what they cost.
type models struct {
	model.Provider
	catalogue *price.Catalogue
}

func openModels(_ context.Context, o Options) (*models, error) {
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
	library, err := scripted.Builtin()
	if err != nil {
		return nil, err
	}
	if o.ScriptsDir != "" {
		if err := library.Load(os.DirFS(o.ScriptsDir)); err != nil {
			return nil, fmt.Errorf("perdure: load scripts: %w", err)
		}
	}
	return &models{Provider: scripted.New(library), catalogue: catalogue}, nil
}

// Cost is the list cost of what a request used.
func (m *models) Cost(id string, usage model.Usage) (session.Cost, bool) {
	cost, ok := m.catalogue.Cost(id, usage, price.Terms{})
	return session.Cost(cost), ok
}

// DefaultEffort is the effort of a model for which none is given.
func (m *models) DefaultEffort(id string) string {
	if known := m.catalogue.Lookup(id); known != nil {
		return known.DefaultEffort
	}
	return ""
}

// Priced reports whether a model has a list price.
func (m *models) Priced(id string) bool {
	known := m.catalogue.Lookup(id)
	return known != nil && known.Priced()
}

// List returns the models that are known by name.
func (m *models) List(context.Context) []model.Info {
	var list []model.Info
	for _, known := range m.catalogue.Models() {
		list = append(list, model.Info{ID: known.ID, DisplayName: known.DisplayName, CreatedAt: known.Released})
	}
	return list
}
