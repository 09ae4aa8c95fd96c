package runner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/session"
)

// request is a model request that is under way.
type request struct {
	id     string // of the event that began it
	cancel context.CancelFunc
	done   chan outcome // receives once, and is closed
}

func (r *request) ended() <-chan outcome {
	if r == nil {
		return nil
	}
	return r.done
}

func (r *request) stop() {
	if r != nil {
		r.cancel()
	}
}

// wait ends the request and waits until nothing of it runs.
func (r *request) wait() {
	if r != nil {
		r.cancel()
		for range r.done {
		}
	}
}

// outcome is what a model request brought. It is made once and may be logged more than once, until a step is appended.
type outcome struct {
	request string // the event that began the request
	answer  session.Answer
	failure *session.Failure
	spent   session.Usage // with failure
	retry   bool          // with failure
	until   time.Time     // with retry
}

func (o *outcome) usage() session.Usage {
	switch {
	case o == nil:
		return session.Usage{}
	case o.failure != nil:
		return o.spent
	default:
		return o.answer.Usage
	}
}

// log adds the outcome to a step. If the log has no such request open any more, because a commit that seemed to fail had
// happened, there is nothing to add.
func (o *outcome) log(step *session.Step) {
	if open := step.State.Request; open == nil || open.ID != o.request {
		return
	}
	switch {
	case o.failure == nil:
		step.EndRequest(o.answer)
	case o.retry:
		step.RetryRequest(o.spent, *o.failure, o.until)
	default:
		step.FailTurn(o.spent, *o.failure)
	}
}

// begin makes the model request that the log says has begun.
func (d *drive) begin(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	r := &request{id: d.state.Request.ID, cancel: cancel, done: make(chan outcome, 1)}
	d.request = r
	preview := &preview{drive: d, ids: map[int]string{}, block: -2}
	failures := d.state.Failures
	build, err := d.buildRequest(ctx)
	go func() {
		defer close(r.done)
		defer cancel()
		if err != nil {
			r.done <- d.failed(err, failures)
			return
		}
		r.done <- d.attempt(ctx, build, preview, failures)
	}()
}

func (d *drive) attempt(ctx context.Context, request model.Request, preview *preview, failures int) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = d.failed(fmt.Errorf("runner: the model's adapter panicked: %v\n%s", p, debug.Stack()), failures)
		}
	}()
	response, err := d.Models.Stream(ctx, request, preview.delta)
	if err != nil && ctx.Err() != nil {
		return d.stopped(err)
	}
	if err != nil {
		return d.failed(err, failures)
	}
	answer, err := d.readAnswer(request.Model, response, preview.ids)
	if err != nil {
		return d.failed(&model.Error{Class: model.RequestFailed, Retryable: true, Message: "the model's answer cannot be read", Usage: response.Usage, Cause: err}, failures)
	}
	return outcome{answer: answer}
}

// buildRequest makes the request from the log alone.
func (d *drive) buildRequest(ctx context.Context) (model.Request, error) {
	a, err := d.loadAgent()
	if err != nil {
		return model.Request{}, err
	}
	messages, err := d.conversation(ctx, a.Model.ID)
	if err != nil {
		return model.Request{}, err
	}
	return model.Request{
		Model: a.Model.ID, Effort: a.effort(), Speed: a.Model.Speed, InferenceGeo: a.Model.InferenceGeo, System: a.system, Tools: a.tools.Offered(),
		Messages: messages, MaxTokens: d.MaxTokens, Session: d.lease.Session,
	}, nil
}

// stopped is the outcome of an attempt that was ended from here. Only what it is known to have used counts.
func (d *drive) stopped(err error) outcome {
	var e *model.Error
	if !errors.As(err, &e) {
		e = &model.Error{}
	}
	return outcome{failure: &session.Failure{Type: "unknown_error", Message: "the request was ended"}, spent: d.priced(d.modelID(), e.Usage)}
}

// failed judges a failed attempt: whether and when it is made again, and what the client is told.
func (d *drive) failed(err error, failures int) outcome {
	var e *model.Error
	if !errors.As(err, &e) {
		e = &model.Error{Class: "unknown_error", Message: "the model request could not be made; the server's log says more", Retryable: true, Cause: err}
	}
	d.log.Warn("a model request failed", "class", e.Class, "status", e.Status, "retryable", e.Retryable, "failures", failures+1, "error", err)
	o := outcome{
		failure: &session.Failure{Type: string(e.Class), Message: e.Message},
		spent:   d.priced(d.modelID(), e.Usage),
	}
	wait := max(d.Retry.delay(failures), e.RetryAfter)
	if e.Retryable && failures+1 < d.Retry.Attempts && e.RetryAfter <= d.Retry.MaxWait {
		o.retry, o.until = true, time.Now().Add(wait)
	}
	return o
}

// delay is how long to wait after a number of failures before this one, with jitter so that sessions which failed
// together do not come back together.
func (r Retry) delay(failures int) time.Duration {
	d := r.Base
	for range min(failures, 30) {
		d = min(2*d, r.Cap)
	}
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}

func (d *drive) modelID() string {
	if d.agent == nil {
		return ""
	}
	return d.agent.Model.ID
}

func (d *drive) priced(id string, u model.Usage) session.Usage {
	usage := session.Usage{
		Input: u.InputTokens, Output: u.OutputTokens, CacheRead: u.CacheReadTokens,
		CacheWrite5m: u.CacheWrite5mTokens, CacheWrite1h: u.CacheWrite1hTokens,
		WebSearches: u.WebSearchRequests, Fast: u.Fast,
	}
	if u == (model.Usage{}) {
		return usage
	}
	cost, ok := d.Prices.Cost(id, d.agent.Model.InferenceGeo, u)
	if !ok {
		usage.Unpriced = 1
		return usage
	}
	usage.Cost = cost
	return usage
}

// readAnswer reads the blocks of an answer and judges its calls.
func (d *drive) readAnswer(modelID string, response *model.Response, ids map[int]string) (session.Answer, error) {
	answer := session.Answer{
		StopReason: response.StopReason, Details: response.StopDetails, Model: modelID, Provider: response.ID,
		Usage: d.priced(modelID, response.Usage),
	}
	broken := map[int]model.BrokenCall{}
	for _, b := range response.Broken {
		broken[b.Block] = b
	}
	for i, raw := range response.Content {
		var b struct {
			Type  string         `json:"type"`
			Text  string         `json:"text"`
			ID    string         `json:"id"`
			Name  string         `json:"name"`
			Input jsontext.Value `json:"input"`
		}
		if err := json.Unmarshal(raw, &b); err != nil {
			return session.Answer{}, fmt.Errorf("runner: block %d of the answer: %w", i, err)
		}
		block := session.AnswerBlock{Event: ids[i], Type: b.Type, Raw: raw, Text: b.Text}
		if b.Type == "tool_use" {
			call := d.agent.tools.Judge(b.Name, b.Input)
			call.Provider = b.ID
			cut := broken[i].Cut || response.StopReason == "max_tokens" && i == len(response.Content)-1
			switch _, isBroken := broken[i]; {
			case cut:
				call.Cut, call.Refusal = true, "This call was cut off by the limit of the answer's length and was not run. Make smaller calls."
			case isBroken:
				call.Refusal = "The input of this call is not a JSON object, and the call was not run: " + broken[i].Input
			}
			block.Event, block.Call = id.New(id.Event), &call
		}
		answer.Blocks = append(answer.Blocks, block)
	}
	return answer, nil
}
