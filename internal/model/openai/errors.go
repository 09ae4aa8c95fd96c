package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/attempt"
)

// maxErrorBody bounds what is read of an error.
const maxErrorBody = 64 << 10

// maxWhole bounds an answer that came whole although a stream was asked for.
const maxWhole = 16 << 20

// lenient reads what servers say, of which some is no Unicode or repeats names. What is kept is made strict.
var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// doer makes the library's requests part of an attempt, and turns answers that the library does not understand into ones
// that it does: errors of any shape into *model.Error, and a whole answer into a stream of one event.
type doer struct {
	client *http.Client
	try    *attempt.Attempt
}

func (d *doer) Do(request *http.Request) (*http.Response, error) {
	response, err := d.try.Do(d.client, request)
	if err != nil {
		return nil, err
	}
	wait := model.RetryAfter(response.Header, time.Now())
	if response.StatusCode >= 400 {
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
		if err != nil {
			return nil, err
		}
		return nil, rejected(response.StatusCode, readFailure(body), wait)
	}
	if request.Header.Get("Accept") != "text/event-stream" {
		return response, nil
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if kind == "text/event-stream" || kind == "" || kind == "text/plain" || kind == "application/x-ndjson" {
		return response, nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxWhole))
	if err != nil {
		return nil, err
	}
	value := jsontext.Value(body)
	if value.Compact(lenient) != nil || value.Kind() != '{' {
		return nil, &model.Error{Class: model.RequestFailed, Status: response.StatusCode, Retryable: true,
			Message: fmt.Sprintf("the model provider answered with %q instead of an event stream; is the base URL right?", kind),
			Cause:   errors.New(model.Shorten(string(body), 300))}
	}
	if f := readFailure(value); f.found {
		return nil, rejected(response.StatusCode, f, wait)
	}
	stream := io.MultiReader(strings.NewReader("data: "), bytes.NewReader(value), strings.NewReader("\n\ndata: [DONE]\n\n"))
	response.Body = io.NopCloser(stream)
	return response, nil
}

// failure is what a server said went wrong.
type failure struct {
	Message, Type, Code string
	found               bool // an error was recognized, and not only text
}

// readFailure reads the shapes of errors that are in use:
//
//	{"error":{"message":…,"type":…,"code":…}}   OpenAI, llama.cpp, OpenRouter (whose code is the status)
//	{"error":"…"}                               Ollama's own API
//	{"message":…,"type":…,"code":…}             older vLLM, with "object":"error"
//	{"detail":…}                                FastAPI, for requests that it does not let through
//	anything else                               proxies
func readFailure(body jsontext.Value) failure {
	var parsed struct {
		Object  string         `json:"object"`
		Error   jsontext.Value `json:"error"`
		Message jsontext.Value `json:"message"`
		Type    jsontext.Value `json:"type"`
		Code    jsontext.Value `json:"code"`
		Detail  jsontext.Value `json:"detail"`
	}
	if json.Unmarshal(body, &parsed, lenient) != nil {
		return failure{Message: plain(string(body))}
	}
	switch parsed.Error.Kind() {
	case '{':
		inner := readFailure(parsed.Error)
		inner.found = true
		return inner
	case '"':
		return failure{Message: words(parsed.Error), found: true}
	}
	if parsed.Message != nil {
		return failure{Message: words(parsed.Message), Type: words(parsed.Type), Code: words(parsed.Code), found: parsed.Object == "error"}
	}
	if parsed.Detail != nil {
		return failure{Message: words(parsed.Detail), found: true}
	}
	return failure{Message: plain(string(body))}
}

// words is a string as it is and anything else as JSON.
func words(raw jsontext.Value) string {
	var text string
	if raw.Kind() == '"' && json.Unmarshal(raw, &text, lenient) == nil {
		return text
	}
	if raw == nil || raw.Kind() == 'n' {
		return ""
	}
	return string(raw)
}

// plain keeps a proxy's page out of the message.
func plain(text string) string {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "<") {
		return ""
	}
	return model.Shorten(text, 500)
}

// rejected classifies a failure. OpenAI says with 429 both that the rate is too high and that the money is used up.
func rejected(status int, f failure, wait time.Duration) *model.Error {
	if code, err := strconv.Atoi(f.Code); err == nil && code >= 400 && code <= 599 && status < 400 {
		status = code
	}
	wireType := f.Type
	switch {
	case f.Code == "insufficient_quota" || f.Type == "insufficient_quota":
		wireType = "billing_error"
	case f.Type == "server_error" && status < 400:
		wireType = "api_error"
	case f.Code == "rate_limit_exceeded":
		wireType = "rate_limit_error"
	}
	return model.Rejected(status, wireType, f.Message, wait)
}
