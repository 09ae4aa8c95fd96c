package anthropic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/ssestream"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/attempt"
)

// OfficialURL is where Anthropic serves.
const OfficialURL = "https://api.anthropic.com"

// fastModeBeta is asked for by the models for which fast mode is a preview.
const fastModeBeta = "fast-mode-2026-02-01"

// Config says where the API is and how patient to be. Zero values stand for the defaults.
type Config struct {
	// BaseURL is the server, without /v1; the default is OfficialURL.
	BaseURL string
	// APIKey is sent as x-api-key, AuthToken as a bearer token. A server of one's own may need neither.
	APIKey    model.Secret
	AuthToken model.Secret
	// HTTPClient must have no Timeout, which would end long answers; the default is attempt.NewClient.
	HTTPClient *http.Client
	// MaxTokens is used for requests that name no limit of the answer; the default is 32,000.
	MaxTokens int
	// CacheTTL is how long prompt prefixes are kept by the provider, 5m (the default) or 1h.
	CacheTTL string
	// SessionHeader, if set, is a header that gets the id of the session, for gateways that log or route by it.
	SessionHeader string

	// Limits say how patient to be with an answer.
	Limits attempt.Limits
}

// Provider is a model.Provider for the Anthropic Messages API.
type Provider struct {
	config Config
	client sdk.Client
}

var _ model.Provider = (*Provider)(nil)

// New checks the configuration. It makes no request.
func New(config Config) (*Provider, error) {
	if config.BaseURL == "" {
		config.BaseURL = OfficialURL
	}
	base, err := url.Parse(config.BaseURL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("the base URL of the Anthropic API must be like %s, it is %q", OfficialURL, config.BaseURL)
	}
	config.BaseURL = strings.TrimSuffix(strings.TrimRight(config.BaseURL, "/"), "/v1")
	switch config.CacheTTL {
	case "":
		config.CacheTTL = "5m"
	case "5m", "1h":
	default:
		return nil, fmt.Errorf("the life of the prompt cache must be 5m or 1h, it is %q", config.CacheTTL)
	}
	if config.HTTPClient == nil {
		config.HTTPClient = attempt.NewClient()
	}
	if config.MaxTokens == 0 {
		config.MaxTokens = 32_000
	}
	options := []option.RequestOption{
		// Keys and addresses come from the configuration alone; the client must not find others in the environment.
		option.WithoutEnvironmentDefaults(),
		option.WithoutOpenTelemetry(),
		option.WithMaxRetries(0),
		option.WithBaseURL(config.BaseURL),
	}
	if config.APIKey != "" {
		options = append(options, option.WithAPIKey(config.APIKey.Reveal()))
	}
	if config.AuthToken != "" {
		options = append(options, option.WithAuthToken(config.AuthToken.Reveal()))
	}
	if config.APIKey == "" && config.AuthToken == "" {
		// The client insists on a credential. A server that asks for none ignores it.
		options = append(options, option.WithAPIKey("none"))
	}
	return &Provider{config: config, client: sdk.NewClient(options...)}, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, request model.Request, preview func(model.Delta)) (*model.Response, error) {
	body, err := p.body(request)
	if err != nil {
		return nil, &model.Error{Class: model.RequestFailed, Message: "the request cannot be written: " + err.Error(), Cause: err}
	}
	try := attempt.Begin(ctx, p.config.Limits)
	defer try.Stop()

	options := []option.RequestOption{option.WithHTTPClient(&watched{p.config.HTTPClient, try})}
	if request.Speed == "fast" {
		options = append(options, option.WithHeader("Anthropic-Beta", fastModeBeta))
	}
	if p.config.SessionHeader != "" && request.Session != "" {
		options = append(options, option.WithHeader(p.config.SessionHeader, request.Session))
	}
	var response *http.Response
	if err := p.client.Post(try.Context(), "v1/messages", body, &response, options...); err != nil {
		return nil, p.failure(try, err, model.Usage{})
	}
	defer response.Body.Close()
	if err := notStreamed(response); err != nil {
		return nil, p.failure(try, err, model.Usage{})
	}

	answer := &assembly{preview: preview, ids: model.NewCallIDs(request.Messages)}
	events := ssestream.NewDecoder(response)
	for events.Next() {
		event := events.Event()
		if event.Type != "ping" && event.Type != "" {
			try.Heard()
		}
		done, err := answer.take(event.Type, event.Data)
		if err != nil {
			return nil, p.failure(try, err, answer.usage)
		}
		if done {
			return answer.response()
		}
	}
	err = events.Err()
	if err == nil {
		err = errors.New("there was no message_stop")
	}
	return nil, p.failure(try, err, answer.usage)
}

// failure makes what the caller is told of whatever went wrong.
func (p *Provider) failure(try *attempt.Attempt, err error, usage model.Usage) error {
	var refused *sdk.Error
	if errors.As(err, &refused) {
		header := http.Header{}
		if refused.Response != nil {
			header = refused.Response.Header
		}
		failed := model.Rejected(refused.StatusCode, string(refused.Type()), refused.Message, model.RetryAfter(header, time.Now()))
		// The API knows better than the status: a 429 can mean that nothing is left for the month.
		switch header.Get("X-Should-Retry") {
		case "true":
			failed.Retryable = failed.Class != model.Billing
		case "false":
			failed.Retryable, failed.RetryAfter = false, 0
		}
		if refused.RequestID != "" {
			failed.Cause = errors.New("request id " + refused.RequestID)
		}
		err = failed
	}
	return try.Failed(err, p.redact, usage)
}

// watched makes the client library's requests part of an attempt.
type watched struct {
	client *http.Client
	try    *attempt.Attempt
}

func (w *watched) Do(request *http.Request) (*http.Response, error) {
	return w.try.Do(w.client, request)
}

func (p *Provider) redact(text string) string {
	return p.config.AuthToken.Redact(p.config.APIKey.Redact(text))
}

// Models lists the models that the server offers, at most 1,000.
func (p *Provider) Models(ctx context.Context) ([]model.Info, error) {
	try := attempt.Begin(ctx, attempt.Short)
	defer try.Stop()
	page, err := p.client.Models.List(try.Context(), sdk.ModelListParams{Limit: sdk.Int(1000)}, option.WithHTTPClient(&watched{p.config.HTTPClient, try}))
	if err != nil {
		return nil, p.failure(try, err, model.Usage{})
	}
	infos := make([]model.Info, 0, len(page.Data))
	for _, entry := range page.Data {
		infos = append(infos, model.Info{ID: entry.ID, DisplayName: entry.DisplayName, CreatedAt: entry.CreatedAt})
	}
	return infos, nil
}

// Check makes a request that costs nothing, to find out whether the address and the key are right.
func (p *Provider) Check(ctx context.Context) error {
	_, err := p.Models(ctx)
	return err
}
