package router

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/mockserver"
	"github.com/perdure/perdure/internal/model/scripted"
)

func environment(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func newRouter(t testing.TB, config Config) *Router {
	t.Helper()
	r, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestModelsGoToTheirProviders(t *testing.T) {
	both := []ProviderConfig{
		{Name: "anthropic", Kind: Anthropic, APIKey: "k"},
		{Name: "openai", Kind: OpenAI, BaseURL: "http://localhost:1"},
		{Name: "gate", Kind: OpenAI, BaseURL: "http://localhost:2", Models: []string{"claude-special", "qwen*", "claude-*"}},
	}
	for _, test := range []struct {
		id   string
		with []ProviderConfig
		want string
	}{
		{"scripted/demo", both, "scripted scripted/demo"},
		{"scripted/nope", nil, "scripted scripted/nope"},
		{"claude-opus-5", both, "anthropic claude-opus-5"},
		{"claude-special", both, "gate claude-special"},
		{"qwen3:8b", both, "gate qwen3:8b"},
		{"gpt-9", both, "openai gpt-9"},
		{"openai/claude-opus-5", both, "openai claude-opus-5"},
		{"gate/anthropic/claude-opus-5", both, "gate anthropic/claude-opus-5"},
		{"meta/llama", both, "openai meta/llama"},
		{"claude-opus-5", both[1:2], "openai claude-opus-5"},
		{"gpt-9", both[:1], ""},
		{"claude-opus-5", nil, ""},
		{"", both, ""},
		{"anthropic/", both[:1], ""},
	} {
		route, err := newRouter(t, Config{Providers: test.with}).Resolve(test.id)
		if test.want == "" {
			var failed *model.Error
			if !errors.As(err, &failed) || failed.Retryable || !strings.Contains(failed.Message, "scripted/demo works without any") {
				t.Errorf("%q: %v, %v", test.id, route, err)
			}
			continue
		}
		if got := route.Provider + " " + route.Model; got != test.want || err != nil {
			t.Errorf("%q goes to %s (%v), want %s", test.id, got, err, test.want)
		}
	}
	_, err := newRouter(t, Config{}).Resolve("claude-opus-5")
	if !strings.Contains(err.Error(), "set ANTHROPIC_API_KEY") {
		t.Error(err)
	}
	_, err = newRouter(t, Config{Providers: both[:1]}).Resolve("llama")
	if !strings.Contains(err.Error(), "OPENAI_BASE_URL") || !strings.Contains(err.Error(), "the configured providers are anthropic") {
		t.Error(err)
	}
}

func TestTheEnvironmentMakesProviders(t *testing.T) {
	for _, test := range []struct {
		values map[string]string
		want   string
	}{
		{nil, ""},
		{map[string]string{"ANTHROPIC_BASE_URL": "http://localhost:8080", "ANTHROPIC_API_KEY": " "}, ""},
		{map[string]string{"ANTHROPIC_API_KEY": "key-one\n"}, "anthropic anthropic  key-one;"},
		{map[string]string{"ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_BASE_URL": "http://a"}, "anthropic anthropic http://a ;"},
		{map[string]string{"OPENAI_BASE_URL": "http://localhost:11434/v1"}, "openai openai http://localhost:11434/v1 ;"},
		{map[string]string{"OPENAI_API_KEY": "key-two", "ANTHROPIC_API_KEY": "key-one"}, "anthropic anthropic  key-one;openai openai  key-two;"},
	} {
		got := ""
		config := FromEnvironment(environment(test.values))
		for _, p := range config.Providers {
			got += fmt.Sprintf("%s %s %s %s;", p.Name, p.Kind, p.BaseURL, p.APIKey.Reveal())
		}
		if got != test.want {
			t.Errorf("%v makes %q, want %q", test.values, got, test.want)
		}
		if text := fmt.Sprintf("%v %+v %#v", config, config, config); strings.Contains(text, "key-one") || strings.Contains(text, "key-two") {
			t.Errorf("the key shows: %s", text)
		}
		newRouter(t, config)
	}
}

func TestConfigurationsThatAreWrongAreRefused(t *testing.T) {
	for want, providers := range map[string][]ProviderConfig{
		"lower-case":              {{Name: "My Gate", Kind: OpenAI}},
		"that of the scripted":    {{Name: "scripted", Kind: OpenAI}},
		"must be anthropic or":    {{Name: "a", Kind: "azure"}},
		"another one named a":     {{Name: "a", Kind: OpenAI}, {Name: "a", Kind: Anthropic}},
		"asterisk only at its":    {{Name: "a", Kind: OpenAI, Models: []string{"a*b*"}}},
		"base URL of the OpenAI":  {{Name: "a", Kind: OpenAI, BaseURL: "localhost"}},
		"base URL of the Anthrop": {{Name: "a", Kind: Anthropic, BaseURL: "x"}},
		"5m or 1h":                {{Name: "a", Kind: Anthropic, CacheTTL: "2h"}},
	} {
		if _, err := New(Config{Providers: providers}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// upstream serves an OpenAI-compatible list of models and counts how often it is asked.
func upstream(t *testing.T, status int, list string) (string, *atomic.Int32) {
	t.Helper()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, list)
	}))
	t.Cleanup(server.Close)
	return server.URL, &asked
}

func TestTheDefaultModel(t *testing.T) {
	local, _ := upstream(t, 200, `{"data":[{"id":"nomic-embed-text","created":9},{"id":"qwen3:8b","created":1},{"id":"gemma","created":2}]}`)
	down, _ := upstream(t, 500, `{}`)
	for _, test := range []struct {
		config Config
		want   string
	}{
		{Config{}, "scripted/demo"},
		{Config{Default: "x"}, "x"},
		{Config{Providers: []ProviderConfig{{Name: "anthropic", Kind: Anthropic, APIKey: "k"}}}, "claude-sonnet-5-5"},
		{Config{Providers: []ProviderConfig{{Name: "openai", Kind: OpenAI, BaseURL: local}}}, "gemma"},
		{Config{Providers: []ProviderConfig{{Name: "openai", Kind: OpenAI, BaseURL: local, DefaultModel: "qwen3:8b"}}}, "qwen3:8b"},
		{Config{Providers: []ProviderConfig{{Name: "local", Kind: OpenAI, BaseURL: local, Models: []string{"none"}}}}, "local/gemma"},
		{Config{Providers: []ProviderConfig{{Name: "openai", Kind: OpenAI, BaseURL: down}}}, "scripted/demo"},
	} {
		if got := newRouter(t, test.config).Default(t.Context()); got != test.want {
			t.Errorf("%+v: %s, want %s", test.config, got, test.want)
		}
	}
	r := newRouter(t, Config{Providers: []ProviderConfig{{Name: "anthropic", Kind: Anthropic, APIKey: "k"}}})
	if m := r.catalogue.Lookup(preferred); m == nil || !m.Priced() {
		t.Errorf("%s is not in the catalogue", preferred)
	}
}

func TestListsAreKeptAndFaultsLeaveTheRest(t *testing.T) {
	local, asked := upstream(t, 200, `{"data":[{"id":"gemma"},{"id":"claude-local"}]}`)
	down, _ := upstream(t, 503, `{"error":"maintenance"}`)
	r := newRouter(t, Config{Providers: []ProviderConfig{
		{Name: "anthropic", Kind: Anthropic, APIKey: "k", BaseURL: down},
		{Name: "local", Kind: OpenAI, BaseURL: local},
		{Name: "gone", Kind: OpenAI, BaseURL: down},
	}})
	for range 2 {
		infos, err := r.List(t.Context())
		if err == nil || !strings.Contains(err.Error(), "models of gone") || !strings.Contains(err.Error(), "models of anthropic") {
			t.Errorf("got %v", err)
		}
		ids := map[string]bool{}
		for _, info := range infos {
			if ids[info.ID] || info.DisplayName == "" {
				t.Errorf("%+v", info)
			}
			ids[info.ID] = true
			if _, err := r.Resolve(info.ID); err != nil {
				t.Error(err)
			}
		}
		for _, want := range []string{"claude-opus-5-5", "gemma", "local/claude-local", "scripted/demo"} {
			if !ids[want] {
				t.Errorf("%s is not listed", want)
			}
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the list was asked for %d times", n)
	}
}

func TestRequestsAndChecksGoThrough(t *testing.T) {
	script, err := scripted.Parse("hello", []byte("otherwise: {text: hi}"))
	if err != nil {
		t.Fatal(err)
	}
	library := scripted.NewLibrary(script)
	mock := httptest.NewServer(mockserver.New(mockserver.Config{Library: library, APIKey: "right", Strict: true}))
	defer mock.Close()
	r := newRouter(t, Config{Scripts: library, Providers: []ProviderConfig{
		{Name: "good", Kind: Anthropic, BaseURL: mock.URL, APIKey: "right", Models: []string{"hello"}},
		{Name: "bad", Kind: Anthropic, BaseURL: mock.URL, APIKey: "wrong", Models: []string{"none"}},
	}})
	request := model.Request{Messages: []model.Message{{Role: "user", Content: jsontext.Value(`"x"`)}}}
	for id, want := range map[string]string{"scripted/hello": "scripted/hello", "hello": "hello", "good/scripted/hello": "scripted/hello"} {
		request.Model = id
		response, err := r.Stream(t.Context(), request, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(`{"type":"text","text":"hi"}`, string(response.Content[0])); diff != "" || response.Model != want {
			t.Errorf("%s: %s %s", id, response.Model, diff)
		}
	}
	request.Model = "nobody"
	if _, err := r.Stream(t.Context(), request, nil); err == nil {
		t.Error("a model of nobody was served")
	}
	statuses := r.Check(t.Context())
	if len(statuses) != 2 || statuses[0].Err != nil || statuses[1].Err == nil || statuses[1].Provider != "bad" {
		t.Errorf("%+v", statuses)
	}
}
