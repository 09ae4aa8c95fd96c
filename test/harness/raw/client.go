// Package raw speaks to a server with nothing in between: one HTTP request, one answer, one line of a stream at a time. It
// is for tests of what is on the wire, where a client library would hide it.
package raw

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// limit bounds one request and each wait on a stream.
const limit = 60 * time.Second

// Client sends requests to one server. A zero Key sends no credential.
type Client struct {
	URL string
	Key string
}

// Response is an answer, read whole.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Get is a value of the body by its path, as of package gjson.
func (r *Response) Get(path string) gjson.Result { return gjson.GetBytes(r.Body, path) }

func (r *Response) String() string { return fmt.Sprintf("%d %s", r.Status, r.Body) }

// Do sends a request. The body is sent as it stands if it is bytes or text, as JSON otherwise, and not at all if it is nil.
func (c Client) Do(tb testing.TB, method, path string, body any, header ...string) *Response {
	tb.Helper()
	response, err := c.Try(method, path, body, header...)
	if err != nil {
		tb.Fatalf("%s %s: %v", method, path, err)
	}
	return response
}

// Try is Do for requests that may get no answer.
func (c Client) Try(method, path string, body any, header ...string) (*Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	response, err := c.send(ctx, method, path, body, header)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return &Response{response.StatusCode, response.Header, content}, nil
}

func (c Client) send(ctx context.Context, method, path string, body any, header []string) (*http.Response, error) {
	content, err := encode(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.URL+path, content)
	if err != nil {
		return nil, err
	}
	if c.Key != "" {
		request.Header.Set("Authorization", "Bearer "+c.Key)
	}
	request.Header.Set("Anthropic-Version", "2023-06-01")
	request.Header.Set("Anthropic-Beta", "managed-agents-2026-04-01")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] == "-" {
			request.Header.Del(header[i])
		} else {
			request.Header.Set(header[i], header[i+1])
		}
	}
	return http.DefaultClient.Do(request)
}

func encode(body any) (io.Reader, error) {
	switch b := body.(type) {
	case nil:
		return nil, nil
	case []byte:
		return bytes.NewReader(b), nil
	case string:
		return bytes.NewReader([]byte(b)), nil
	case io.Reader:
		return b, nil
	}
	encoded, err := json.Marshal(body)
	return bytes.NewReader(encoded), err
}

// Want fails the test unless the status is this one, and answers the response.
func (r *Response) Want(tb testing.TB, status int) *Response {
	tb.Helper()
	if r.Status != status {
		tb.Fatalf("status %d, want %d: %s", r.Status, status, r.Body)
	}
	return r
}

// WantError fails the test unless the answer is an error in the envelope, with this status and type, and the request id of
// its header in it. An empty type matches every type.
func (r *Response) WantError(tb testing.TB, status int, kind string) *Response {
	tb.Helper()
	if r.Status != status {
		tb.Fatalf("status %d, want %d: %s", r.Status, status, r.Body)
	}
	if media := r.Header.Get("Content-Type"); media != "application/json" {
		tb.Errorf("content type of an error is %q", media)
	}
	if got := r.Get("type").String(); got != "error" {
		tb.Errorf("type %q, want error: %s", got, r.Body)
	}
	if got := r.Get("error.type").String(); kind != "" && got != kind {
		tb.Errorf("error.type %q, want %q: %s", got, kind, r.Body)
	}
	if r.Get("error.message").String() == "" {
		tb.Errorf("an error without a message: %s", r.Body)
	}
	id := r.Header.Get("Request-Id")
	if id == "" || r.Get("request_id").String() != id {
		tb.Errorf("request id %q in the header, %s in the body", id, r.Get("request_id").Raw)
	}
	return r
}
