package anthropic

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/model"
)

// maxErrorBody bounds what is read of an answer that is no stream.
const maxErrorBody = 64 << 10

// notStreamed makes an error of a successful answer that is no event stream: an error that some gateways send under the
// status 200, or a web page of something that is not the API.
func notStreamed(response *http.Response) error {
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err == nil && kind == "text/event-stream" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err != nil {
		return err
	}
	var parsed struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &parsed) == nil && (parsed.Error.Type != "" || parsed.Error.Message != "") {
		return model.Rejected(response.StatusCode, parsed.Error.Type, parsed.Error.Message, model.RetryAfter(response.Header, time.Now()))
	}
	return &model.Error{Class: model.RequestFailed, Status: response.StatusCode, Retryable: true,
		Message: fmt.Sprintf("the model provider answered with %q instead of an event stream; is the base URL right?", kind),
		Cause:   errors.New(model.Shorten(string(body), 300))}
}
