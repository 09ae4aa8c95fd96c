package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/netguard"
)

var errTotalTime = errors.New("web_fetch took too long")

// Fetch runs one call of web_fetch. The result is a document, or an error that the model can read. When ctx ends it
// returns promptly with an error result; the caller knows from ctx whether that is worth recording.
func (t *Tools) Fetch(ctx context.Context, settings Settings, input jsontext.Value) Result {
	var in struct {
		URL *string `json:"url"`
	}
	if err := json.Unmarshal(input, &in); err != nil || in.URL == nil {
		return failf(codeInvalidInput, `The input must be an object with one string, url: {"url":"https://example.com/page"}.`).because(err).result()
	}
	target, failed := parseTarget(*in.URL)
	if failed == nil {
		failed = settings.check(target)
	}
	if failed != nil {
		return failed.result()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.limits.total, errTotalTime)
	defer cancel()
	got, failed := t.get(ctx, settings, target)
	if failed != nil {
		return failed.result()
	}
	return present(got, runeLimit(settings.MaxContentTokens))
}

// fetched is a response that was read to its end.
type fetched struct {
	asked       *url.URL
	final       *url.URL // after redirects
	contentType string   // the header, "" if there was none
	body        []byte
}

// get follows redirects to a successful response and reads it within the limits.
func (t *Tools) get(ctx context.Context, settings Settings, target *url.URL) (fetched, *failure) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return fetched{}, failf(codeInvalidInput, "The URL cannot be requested.").because(err)
	}
	request.Header.Set("User-Agent", t.userAgent)
	request.Header.Set("Accept", "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.5")
	// Set by hand, so that the transport leaves decompression to readBody, which bounds both sides of it.
	request.Header.Set("Accept-Encoding", "gzip")

	client := *t.client
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if len(via) > t.limits.redirects {
			return failf(codeURLNotAccessible, "The page redirects more than %d times.", t.limits.redirects)
		}
		next.Header.Del("Referer") // the address of one site is not the next one's business
		if len(next.URL.String()) > maxURLLength {
			return failf(codeURLTooLong, "The page redirects to a URL that is longer than %d bytes.", maxURLLength)
		}
		failed := normalizeTarget(next.URL)
		if failed == nil {
			failed = settings.check(next.URL)
		}
		if failed != nil {
			failed.message = "The page redirects to a URL that cannot be fetched. " + failed.message
			return failed
		}
		next.Host = ""
		return nil
	}
	response, err := client.Do(request)
	if err != nil {
		return fetched{}, t.explain(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return fetched{}, failf(codeURLNotAccessible, "The server of %s answered with status %d %s.",
			response.Request.URL.Hostname(), response.StatusCode, http.StatusText(response.StatusCode))
	}
	body, failed := t.readBody(ctx, response)
	if failed != nil {
		return fetched{}, failed
	}
	return fetched{
		asked:       target,
		final:       response.Request.URL,
		contentType: response.Header.Get("Content-Type"),
		body:        body,
	}, nil
}

// readBody reads the whole body. The limit holds for what is sent and for what comes out of decompression, so that
// neither a small body that grows nor a large one that shrinks costs more.
func (t *Tools) readBody(ctx context.Context, response *http.Response) ([]byte, *failure) {
	tooLarge := failf(codeURLNotAccessible, "The page is larger than %d MB, which is more than can be fetched.", t.limits.body>>20)
	if response.ContentLength > t.limits.body {
		return nil, tooLarge
	}
	sent := &io.LimitedReader{R: response.Body, N: t.limits.body + 1}
	var plain io.Reader = sent
	switch encoding := strings.ToLower(strings.TrimSpace(response.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		unzipped, err := gzip.NewReader(sent)
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, t.explainBody(ctx, err)
		}
		plain = unzipped
	default:
		return nil, failf(codeUnsupportedContent, "The page is compressed as %q, though only gzip was asked for.", shorten(encoding, 64))
	}
	body, err := io.ReadAll(io.LimitReader(plain, t.limits.body+1))
	if sent.N <= 0 || int64(len(body)) > t.limits.body {
		return nil, tooLarge
	}
	if err != nil {
		return nil, t.explainBody(ctx, err)
	}
	return body, nil
}

func (t *Tools) explainBody(ctx context.Context, err error) *failure {
	if ctx.Err() != nil {
		return t.explain(ctx, err)
	}
	return failf(codeURLNotAccessible, "The page could not be read to its end: the connection broke or the data is damaged.").because(err)
}

// explain tells the model why a request got no answer, without the internals that network errors contain.
func (t *Tools) explain(ctx context.Context, err error) *failure {
	var (
		failed      *failure
		refused     *netguard.RefusedError
		notFound    *net.DNSError
		certificate *tls.CertificateVerificationError
		hostname    x509.HostnameError
		timeout     net.Error
	)
	host := "the server"
	var request *url.Error
	if errors.As(err, &request) {
		if u, parseErr := url.Parse(request.URL); parseErr == nil && u.Hostname() != "" {
			host = u.Hostname()
		}
	}
	switch {
	case errors.As(err, &failed):
		return failed
	case errors.Is(context.Cause(ctx), errTotalTime):
		return failf(codeURLNotAccessible, "The page did not arrive within %s.", t.limits.total).because(err)
	case ctx.Err() != nil:
		return failf(codeUnavailable, "The fetch was stopped before it ended.").because(fmt.Errorf("%w: %w", context.Cause(ctx), err))
	case errors.As(err, &refused):
		name, _, splitErr := net.SplitHostPort(refused.Host)
		if splitErr != nil {
			name = host
		}
		return failf(codeURLNotAllowed, "The host %s leads to %s, and only public addresses are fetched.", name, refused.Reason).because(err)
	case errors.As(err, &notFound):
		return failf(codeURLNotAccessible, "The name of the host %s could not be resolved.", host).because(err)
	case errors.As(err, &certificate), errors.As(err, &hostname):
		return failf(codeURLNotAccessible, "The TLS certificate of %s could not be verified.", host).because(err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return failf(codeURLNotAccessible, "The connection to %s timed out.", host).because(err)
	}
	return failf(codeURLNotAccessible, "The connection to %s failed.", host).because(err)
}

const (
	defaultContentTokens = 25_000
	maxContentTokens     = 1_000_000
	runesPerToken        = 4
)

func runeLimit(tokens int64) int {
	if tokens <= 0 {
		tokens = defaultContentTokens
	}
	return int(min(tokens, maxContentTokens)) * runesPerToken
}

// isPDF says whether the body begins as a PDF file does. Readers accept some bytes before the mark.
func isPDF(body []byte) bool {
	return bytes.Contains(body[:min(len(body), 1024)], []byte("%PDF-"))
}
