package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/model"
)

const (
	apiVersion = "2023-06-01"
	apiBeta    = "managed-agents-2026-04-01"
	maxAnswer  = 64 << 20 // a page of events, the largest answer
	maxError   = 64 << 10
)

// Options says where the server is and how patient to be with it. BaseURL and Key are required.
type Options struct {
	BaseURL string       // such as http://127.0.0.1:8700
	Key     model.Secret // an API key of the server
	// Patience is how long a server that does not answer is tried again; default 1 min, negative for not at all.
	Patience time.Duration
	// Silence is how long a stream may be without a sign of life; default 90 s.
	Silence time.Duration
	// MaxWait bounds the growing pause between two attempts; default 5 s.
	MaxWait time.Duration
	// OnTrouble, if set, is told that the server does not answer and when it will be tried again.
	OnTrouble func(err error, wait time.Duration)
}

// Client speaks to one server. It is safe for concurrent use.
type Client struct {
	o    Options
	base *url.URL
	http *http.Client
}

// New checks the options.
func New(o Options) (*Client, error) {
	base, err := url.Parse(strings.TrimRight(o.BaseURL, "/"))
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.User != nil || base.RawQuery != "" {
		return nil, errors.New("the server's URL must look like http://127.0.0.1:8700 or https://perdure.example.com")
	}
	if o.Key == "" {
		return nil, errors.New("an API key of the server is needed: --api-key or PERDURE_API_KEY (perdure keys create makes one)")
	}
	if strings.ContainsFunc(o.Key.Reveal(), func(r rune) bool { return r < '!' || r > '~' }) {
		return nil, errors.New("the API key has characters that no key has; was it copied whole and without spaces?")
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	if o.Silence <= 0 {
		o.Silence = 90 * time.Second
	}
	if o.MaxWait <= 0 {
		o.MaxWait = 5 * time.Second
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 60 * time.Second,
		IdleConnTimeout:       30 * time.Second,
		ForceAttemptHTTP2:     true,
	}
	return &Client{o: o, base: base, http: &http.Client{
		Transport: transport,
		// The key must not follow to wherever a redirect leads.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is a refusal by the server.
type Error struct {
	Status    int
	Type      string
	Message   string
	RequestID string
	after     time.Duration // the pause that the server asked for
}

func (e *Error) Error() string {
	text := e.Message
	if text == "" {
		text = "the server answered " + strconv.Itoa(e.Status) + " without saying why"
	}
	if e.Status == http.StatusUnauthorized {
		text += " (is the API key one of this server's?)"
	}
	if e.RequestID != "" && e.Status >= 500 {
		text += " [" + e.RequestID + "]"
	}
	return text
}

// UnreachableError says that the server could not be reached in time.
type UnreachableError struct {
	URL   string
	For   time.Duration
	Cause error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the server at %s could not be reached (tried for %s): %v", e.URL, e.For.Round(time.Second), e.Cause)
}

func (e *UnreachableError) Unwrap() error { return e.Cause }

// call sends a request, repeats it while that can help, and reads the answer into out (nil: ignored).
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	key := ""
	if method == http.MethodPost {
		key = uuid.NewString()
	}
	return c.patiently(ctx, func() error { return c.exchange(ctx, method, path, query, key, in, out) })
}

// exchange sends a request once. Key makes a POST safe to repeat; "" for none.
func (c *Client) exchange(ctx context.Context, method, path string, query url.Values, key string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
	}
	response, err := c.send(ctx, method, path, query, body, func(h http.Header) {
		if key != "" {
			h.Set("Idempotency-Key", key)
		}
	})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return &transportError{err}
	}
	if len(answer) > maxAnswer {
		return fmt.Errorf("the server's answer to %s %s is larger than %d MiB", method, path, maxAnswer>>20)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("the server's answer to %s %s cannot be read: %w", method, path, err)
	}
	return nil
}

// transportError marks a failure of the connection, after which the request may be sent again.
type transportError struct{ cause error }

func (e *transportError) Error() string { return e.cause.Error() }
func (e *transportError) Unwrap() error { return e.cause }

// send sends one request once. The response has a 2xx status.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body []byte, header func(http.Header)) (*http.Response, error) {
	target := *c.base
	target.Path = strings.TrimRight(target.Path, "/") + path
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+c.o.Key.Reveal())
	request.Header.Set("Anthropic-Version", apiVersion)
	request.Header.Set("Anthropic-Beta", apiBeta)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	header(request.Header)
	response, err := c.http.Do(request)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, &transportError{err}
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, refusal(response)
}

func refusal(response *http.Response) error {
	e := &Error{Status: response.StatusCode, RequestID: response.Header.Get("Request-Id")}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.after = time.Duration(min(seconds, 3600)) * time.Second
	}
	if response.StatusCode/100 == 3 {
		e.Message = "the server answers with a redirect; give its final URL"
		return e
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxError))
	if err != nil {
		return &transportError{err}
	}
	told, err := parseEnvelope(text)
	if err != nil {
		e.Message = fmt.Sprintf("the answer (status %d) is not from a Perdure server; is the URL right?", e.Status)
		return e
	}
	e.Type, e.Message = told.Type, told.Message
	return e
}

// parseEnvelope reads the wire's error envelope.
func parseEnvelope(text []byte) (*Error, error) {
	var envelope struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(text, &envelope); err != nil {
		return nil, errors.New("the server reported an error that cannot be read")
	}
	return &Error{Type: envelope.Error.Type, Message: envelope.Error.Message}, nil
}

// passing reports whether the same request may succeed later, and the pause that the server asked for.
func passing(err error) (bool, time.Duration) {
	var transport *transportError
	if errors.As(err, &transport) {
		return true, 0
	}
	var refused *Error
	if errors.As(err, &refused) {
		switch refused.Status {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, 529:
			return true, refused.after
		}
	}
	return false, 0
}

// patiently repeats an attempt while that can help.
func (c *Client) patiently(ctx context.Context, attempt func() error) error {
	b := c.newBackoff()
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		if again, after := passing(err); !again {
			return err
		} else if err := b.wait(ctx, err, after); err != nil {
			return err
		}
	}
}

// backoff grows the pauses between attempts, until the client's patience is used up.
type backoff struct {
	c     *Client
	since time.Time
	tries int
}

func (c *Client) newBackoff() *backoff { return &backoff{c: c} }

func (b *backoff) reset() { b.since, b.tries = time.Time{}, 0 }

// wait pauses before the next attempt, or returns the error that ends them.
func (b *backoff) wait(ctx context.Context, failure error, atLeast time.Duration) error {
	if b.since.IsZero() {
		b.since = time.Now()
	}
	pause := min(100*time.Millisecond<<min(b.tries, 16), b.c.o.MaxWait)
	pause -= rand.N(pause/4 + 1)
	pause = max(pause, atLeast)
	b.tries++
	if spent := time.Since(b.since); spent+pause > b.c.o.Patience {
		var refused *Error
		if errors.As(failure, &refused) {
			return failure
		}
		return &UnreachableError{URL: b.c.base.Host, For: spent, Cause: failure}
	}
	if b.c.o.OnTrouble != nil {
		b.c.o.OnTrouble(failure, pause)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
