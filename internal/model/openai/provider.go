package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/sashabaranov/go-openai"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/attempt"
)

// OfficialURL is where OpenAI serves.
const OfficialURL = "https://api.openai.com/v1"

// Config says where the server is and what is particular about it.
type Config struct {
	// BaseURL is the server with its path, which is /v1 if there is none; the default is OfficialURL.
	BaseURL string
	// APIKey is sent as a bearer token. Servers of one's own need none.
	APIKey model.Secret
	// HTTPClient must have no Timeout, which would end long answers; the default is attempt.NewClient.
	HTTPClient *http.Client
	// DropReasoning keeps the model's earlier reasoning out of requests, for servers that refuse it.
	DropReasoning bool
	// Limits say how patient to be with an answer. A model that must be loaded first says nothing for a while.
	Limits attempt.Limits
}

// Provider is a model.Provider for a server that speaks the chat completions API.
type Provider struct {
	config   Config
	official bool
}

var _ model.Provider = (*Provider)(nil)

// New checks the configuration. It makes no request.
func New(config Config) (*Provider, error) {
	if config.BaseURL == "" {
		config.BaseURL = OfficialURL
	}
	base, err := url.Parse(config.BaseURL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("the base URL of the OpenAI-compatible API must be like http://localhost:11434/v1, it is %q", config.BaseURL)
	}
	if base.Path == "" || base.Path == "/" {
		base.Path = "/v1"
	}
	config.BaseURL = strings.TrimRight(base.String(), "/")
	if config.HTTPClient == nil {
		config.HTTPClient = attempt.NewClient()
	}
	return &Provider{config: config, official: base.Hostname() == "api.openai.com"}, nil
}

// client is the library's client for one attempt.
func (p *Provider) client(try *attempt.Attempt) *sdk.Client {
	config := sdk.DefaultConfig(p.config.APIKey.Reveal())
	config.BaseURL = p.config.BaseURL
	config.HTTPClient = &doer{client: p.config.HTTPClient, try: try}
	// Comments and blank lines keep a connection open; the attempt's limits decide for how long.
	config.EmptyMessagesLimit = 1 << 30
	return sdk.NewClientWithConfig(config)
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, request model.Request, preview func(model.Delta)) (*model.Response, error) {
	translated, err := p.translate(request)
	if err != nil {
		return nil, &model.Error{Class: model.RequestFailed, Message: "the request cannot be translated: " + err.Error(), Cause: err}
	}
	try := attempt.Begin(ctx, p.config.Limits)
	defer try.Stop()
	answer := newAssembly(request, preview)
	stream, err := p.client(try).CreateChatCompletionStream(try.Context(), translated)
	if err != nil {
		return nil, p.failure(try, err, answer.usage)
	}
	defer func() { _ = stream.Close() }() // nothing more is read
	for {
		raw, err := stream.RecvRaw()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			try.Heard()
			err = answer.take(raw)
		}
		if err != nil {
			return nil, p.failure(try, err, answer.usage)
		}
	}
	if answer.finish == "" {
		return nil, p.failure(try, &model.Error{Class: model.RequestFailed, Retryable: true,
			Message: "the model's answer ended without a finish reason, so it is not complete"}, answer.usage)
	}
	return answer.response()
}

// failure makes what the caller is told of whatever went wrong.
func (p *Provider) failure(try *attempt.Attempt, err error, usage model.Usage) error {
	var refused *sdk.APIError
	if errors.As(err, &refused) {
		// The library read an error from the stream.
		err = rejected(http.StatusOK, failure{Message: refused.Message, Type: refused.Type, Code: fmt.Sprint(refused.Code)}, 0)
	}
	for _, ours := range []error{sdk.ErrReasoningModelMaxTokensDeprecated, sdk.ErrReasoningToolsRequireResponses,
		sdk.ErrReasoningEffortUnsupported, sdk.ErrReasoningSamplingUnsupported, sdk.ErrChatCompletionInvalidModel} {
		if errors.Is(err, ours) {
			err = &model.Error{Class: model.RequestFailed, Message: "this model cannot be used this way: " + ours.Error()}
		}
	}
	return try.Failed(err, p.config.APIKey.Redact, usage)
}

// Models lists the models that the server offers.
func (p *Provider) Models(ctx context.Context) ([]model.Info, error) {
	try := attempt.Begin(ctx, attempt.Short)
	defer try.Stop()
	list, err := p.client(try).ListModels(try.Context())
	if err != nil {
		return nil, p.failure(try, err, model.Usage{})
	}
	infos := make([]model.Info, 0, len(list.Models))
	for _, entry := range list.Models {
		info := model.Info{ID: entry.ID, DisplayName: entry.ID}
		if entry.CreatedAt > 0 {
			info.CreatedAt = time.Unix(entry.CreatedAt, 0).UTC()
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// Check makes a request that costs nothing, to find out whether the address and the key are right.
func (p *Provider) Check(ctx context.Context) error {
	_, err := p.Models(ctx)
	return err
}
