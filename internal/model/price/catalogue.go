package price

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/session"
)

// maxFile bounds a user's catalogue in bytes.
const maxFile = 4 << 20

//go:embed models.yaml
var builtin []byte

// Catalogue holds models by name. It does not change once it is made.
type Catalogue struct {
	models   []*Model
	byName   map[string]*Model
	patterns []*Model // longest first
}

// Model is one entry.
type Model struct {
	ID            string
	Aliases       []string
	DisplayName   string
	Released      time.Time // zero if not known
	Context       int64     // tokens of prompt and answer; 0 if not known
	MaxOutput     int64     // tokens of an answer; 0 if not known
	DefaultEffort string    // "" if the model has no such choice
	// SystemMessages says that the model takes system messages in the middle of a conversation.
	SystemMessages bool

	rates      *rates // nil without a list price
	long       *rates // of a request with a long prompt; nil if that makes no difference
	longAbove  int64
	fastFactor int64 // 0 if fast has no price
}

// rates are pico-dollars for one token.
type rates struct{ input, cacheRead, cacheWrite5m, cacheWrite1h, output session.Cost }

// Priced reports whether the model has a list price, which a budget needs.
func (m *Model) Priced() bool { return m.rates != nil }

// Builtin is the catalogue that comes with Perdure.
func Builtin() (*Catalogue, error) {
	c := &Catalogue{byName: map[string]*Model{}}
	extended, err := c.Extended(builtin)
	if err != nil {
		return nil, fmt.Errorf("built-in catalogue: %w", err)
	}
	return extended, nil
}

// Extended returns the catalogue with the entries of a file added, in place of those with the same id. The package
// documentation describes the file.
func (c *Catalogue) Extended(file []byte) (*Catalogue, error) {
	if len(file) > maxFile {
		return nil, fmt.Errorf("the catalogue has %d bytes, the limit is %d", len(file), maxFile)
	}
	var parsed struct {
		Models []entry `yaml:"models"`
	}
	if err := yaml.UnmarshalWithOptions(file, &parsed, yaml.Strict()); err != nil {
		return nil, err
	}
	models := slices.Clone(c.models)
	for i, e := range parsed.Models {
		m, err := e.model()
		if err != nil {
			return nil, fmt.Errorf("models[%d] (%s): %w", i, e.ID, err)
		}
		if at := slices.IndexFunc(models, func(old *Model) bool { return old.ID == m.ID }); at >= 0 {
			models[at] = m
		} else {
			models = append(models, m)
		}
	}
	return index(models)
}

func index(models []*Model) (*Catalogue, error) {
	c := &Catalogue{models: models, byName: map[string]*Model{}}
	for _, m := range models {
		for _, name := range append([]string{m.ID}, m.Aliases...) {
			if taken := c.byName[name]; taken != nil {
				return nil, fmt.Errorf("the name %q belongs to both %s and %s", name, taken.ID, m.ID)
			}
			c.byName[name] = m
		}
		if strings.HasSuffix(m.ID, "*") {
			c.patterns = append(c.patterns, m)
		}
	}
	slices.SortStableFunc(c.patterns, func(a, b *Model) int { return len(b.ID) - len(a.ID) })
	return c, nil
}

// Models returns all entries but patterns, in the order of the catalogue.
func (c *Catalogue) Models() []*Model {
	return slices.DeleteFunc(slices.Clone(c.models), func(m *Model) bool { return strings.HasSuffix(m.ID, "*") })
}

var dateAtEnd = regexp.MustCompile(`-20\d{6}$`)

// Lookup finds the entry for a model id, nil if there is none.
func (c *Catalogue) Lookup(id string) *Model {
	id = strings.TrimPrefix(id, "anthropic/")
	if strings.HasSuffix(id, "*") {
		return nil
	}
	if m := c.byName[id]; m != nil {
		return m
	}
	if m := c.byName[dateAtEnd.ReplaceAllString(id, "")]; m != nil {
		return m
	}
	for _, m := range c.patterns {
		if strings.HasPrefix(id, strings.TrimSuffix(m.ID, "*")) {
			return m
		}
	}
	return nil
}

// Terms are what the price depends on besides the model and the usage.
type Terms struct {
	// USOnly says that inference was confined to the United States, which costs a tenth more for tokens.
	USOnly bool
}

// Cost is the list price of an answer, or of a failed attempt that reported usage. ok is false if it is not known.
func (c *Catalogue) Cost(id string, usage model.Usage, terms Terms) (cost session.Cost, ok bool) {
	m := c.Lookup(id)
	if m == nil || m.rates == nil {
		return 0, false
	}
	r := m.rates
	prompt := max(usage.InputTokens, 0) + max(usage.CacheReadTokens, 0) + max(usage.CacheWrite5mTokens, 0) + max(usage.CacheWrite1hTokens, 0)
	if m.long != nil && (prompt > m.longAbove || prompt < 0) { // less than nothing is an overflow
		r = m.long
	}
	for _, part := range []struct {
		tokens int64
		rate   session.Cost
	}{
		{usage.InputTokens, r.input},
		{usage.CacheReadTokens, r.cacheRead},
		{usage.CacheWrite5mTokens, r.cacheWrite5m},
		{usage.CacheWrite1hTokens, r.cacheWrite1h},
		{usage.OutputTokens, r.output},
	} {
		cost = plus(cost, times(part.tokens, part.rate))
	}
	if usage.Fast {
		if m.fastFactor == 0 {
			return 0, false
		}
		cost = times(m.fastFactor, cost)
	}
	if terms.USOnly {
		cost = plus(cost, divide(cost, 10))
	}
	return plus(cost, times(usage.WebSearchRequests, webSearch)), true
}

// entry is a model as the file has it.
type entry struct {
	ID             string   `yaml:"id"`
	Aliases        []string `yaml:"aliases"`
	DisplayName    string   `yaml:"display_name"`
	Released       string   `yaml:"released"`
	Context        int64    `yaml:"context"`
	MaxOutput      int64    `yaml:"max_output"`
	DefaultEffort  string   `yaml:"default_effort"`
	SystemMessages bool     `yaml:"system_messages"`
	Prices         *prices  `yaml:"prices"`
	LongPrompt     *tier    `yaml:"long_prompt"`
	FastMultiplier int64    `yaml:"fast_multiplier"`
}

type tier struct {
	Above  int64   `yaml:"above"`
	Prices *prices `yaml:"prices"`
}

type prices struct {
	Input        *amount `yaml:"input"`
	CacheRead    *amount `yaml:"cache_read"`
	CacheWrite5m *amount `yaml:"cache_write_5m"`
	CacheWrite1h *amount `yaml:"cache_write_1h"`
	Output       *amount `yaml:"output"`
}

// amount keeps the text of a number, since a float would not keep its decimals.
type amount string

func (a *amount) UnmarshalYAML(text []byte) error {
	*a = amount(strings.Trim(strings.TrimSpace(string(text)), `"'`))
	_, err := perMillion(string(*a))
	return err
}

func (e entry) model() (*Model, error) {
	if strings.TrimSuffix(e.ID, "*") == "" || strings.ContainsAny(strings.TrimSuffix(e.ID, "*"), "* \t\n") {
		return nil, errors.New("id must be a name without spaces; an asterisk can only be at its end")
	}
	m := &Model{ID: e.ID, Aliases: e.Aliases, DisplayName: e.DisplayName, Context: e.Context, MaxOutput: e.MaxOutput,
		DefaultEffort: e.DefaultEffort, SystemMessages: e.SystemMessages}
	if m.DisplayName == "" {
		m.DisplayName = e.ID
	}
	if !slices.Contains([]string{"", "low", "medium", "high", "xhigh", "max"}, e.DefaultEffort) {
		return nil, errors.New("default_effort must be low, medium, high, xhigh or max")
	}
	if e.Context < 0 || e.MaxOutput < 0 || e.FastMultiplier < 0 || e.FastMultiplier > 1000 {
		return nil, errors.New("context, max_output and fast_multiplier must not be negative, and the last at most 1000")
	}
	m.fastFactor = e.FastMultiplier
	var err error
	if e.Released != "" {
		if m.Released, err = time.Parse(time.DateOnly, e.Released); err != nil {
			return nil, fmt.Errorf("released must be a date such as 2026-07-24: %w", err)
		}
	}
	if m.rates, err = e.Prices.rates(); err != nil {
		return nil, fmt.Errorf("prices: %w", err)
	}
	if e.LongPrompt != nil {
		if e.Prices == nil || e.LongPrompt.Prices == nil || e.LongPrompt.Above <= 0 {
			return nil, errors.New("long_prompt needs above, more than zero, and prices, and the model needs prices as well")
		}
		m.longAbove = e.LongPrompt.Above
		if m.long, err = e.LongPrompt.Prices.rates(); err != nil {
			return nil, fmt.Errorf("long_prompt.prices: %w", err)
		}
	}
	return m, nil
}

func (p *prices) rates() (*rates, error) {
	if p == nil {
		return nil, nil
	}
	if p.Input == nil || p.Output == nil {
		return nil, errors.New("input and output are needed")
	}
	var problems []error
	read := func(given *amount, standard session.Cost) session.Cost {
		if given == nil {
			return standard
		}
		pico, err := perMillion(string(*given))
		problems = append(problems, err)
		return pico
	}
	r := &rates{input: read(p.Input, 0), output: read(p.Output, 0)}
	r.cacheRead = read(p.CacheRead, r.input)
	r.cacheWrite5m = read(p.CacheWrite5m, r.input)
	r.cacheWrite1h = read(p.CacheWrite1h, r.cacheWrite5m)
	return r, errors.Join(problems...)
}
