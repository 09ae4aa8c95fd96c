// Package attempt watches over one attempt to get an answer from a model over HTTP, so that every attempt ends.
//
// A provider that keeps the connection open and says nothing would otherwise hold a session for ever. Three limits end
// it: Idle without a byte, Quiet with nothing but signs of life (pings and comments keep a connection open, but they are
// no answer), and Total for the whole. The attempt's context is what ends; Stalled then says which limit it was. The size
// of an answer is limited as well.
//
// An Attempt belongs to one goroutine. Only its timers run beside it, and all they do is end the context.
package attempt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// maxAnswer bounds the bytes of one answer, far above what the longest one takes.
const maxAnswer = 128 << 20

var errTooLong = fmt.Errorf("the answer has more than %d bytes", maxAnswer)

// Limits say how patient to be. Zero values stand for the defaults.
type Limits struct {
	Idle  time.Duration `yaml:"idle"`  // the longest time without a byte, also before the answer begins; the default is 2 minutes
	Quiet time.Duration `yaml:"quiet"` // the longest time with only signs of life; the default is 10 minutes, since models think unseen
	Total time.Duration `yaml:"total"` // the longest time for an answer; the default is 1 hour
}

// WithDefaults returns the limits with the defaults in place of zeros.
func (l Limits) WithDefaults() Limits {
	for _, limit := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&l.Idle, 2 * time.Minute}, {&l.Quiet, 10 * time.Minute}, {&l.Total, time.Hour}} {
		if *limit.value <= 0 {
			*limit.value = limit.standard
		}
	}
	return l
}

// Short are limits for a request that asks for no answer of a model, such as a list.
var Short = Limits{Idle: 30 * time.Second, Quiet: 30 * time.Second, Total: 30 * time.Second}

// NewClient returns an HTTP client for models. It has no time limit, which would end long answers, and follows no
// redirect: a POST would become a GET, and the header with the key would go along to another host.
func NewClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Attempt is one attempt.
type Attempt struct {
	limits             Limits
	caller, watched    context.Context
	cancel             context.CancelCauseFunc
	idle, quiet, total *time.Timer
}

// stall is why an attempt was ended.
type stall struct {
	what  string
	limit time.Duration
}

func (s *stall) Error() string { return fmt.Sprintf("the model provider %s %s", s.what, s.limit) }

// Begin starts the clocks. Stop must be called.
func Begin(ctx context.Context, limits Limits) *Attempt {
	watched, cancel := context.WithCancelCause(ctx)
	after := func(limit time.Duration, what string) *time.Timer {
		return time.AfterFunc(limit, func() { cancel(&stall{what, limit}) })
	}
	limits = limits.WithDefaults()
	return &Attempt{
		limits: limits, caller: ctx, watched: watched, cancel: cancel,
		idle:  after(limits.Idle, "sent nothing for"),
		quiet: after(limits.Quiet, "sent nothing but signs of life for"),
		total: after(limits.Total, "did not end its answer within"),
	}
}

// Context is the context of the attempt's requests.
func (a *Attempt) Context() context.Context { return a.watched }

// Heard says that a part of the answer came, and not only a sign of life.
func (a *Attempt) Heard() { a.quiet.Reset(a.limits.Quiet) }

// Stop stops the clocks and ends the context.
func (a *Attempt) Stop() {
	a.idle.Stop()
	a.quiet.Stop()
	a.total.Stop()
	a.cancel(context.Canceled)
}

// Failed makes the error that a provider returns when a request or reading its answer failed: one with the caller's cause if
// the caller has ended the attempt, the limit that ended it, the error itself if it is a *model.Error, and otherwise a
// broken connection. redact is applied to all text that came from elsewhere. Usage is what was reported so far.
func (a *Attempt) Failed(err error, redact func(string) string, usage model.Usage) error {
	var stalled *stall
	var failed *model.Error
	switch {
	case a.caller.Err() != nil:
		// Whoever ended the request pays for what it has used all the same.
		return &model.Error{Class: model.RequestFailed, Message: "the request was ended", Usage: usage, Cause: context.Cause(a.caller)}
	case errors.As(context.Cause(a.watched), &stalled):
		failed = &model.Error{Class: model.RequestFailed, Retryable: true, Message: stalled.Error()}
	case errors.As(err, &failed):
		failed.Message = redact(failed.Message)
		if failed.Cause != nil {
			failed.Cause = errors.New(redact(failed.Cause.Error()))
		}
	default:
		failed = &model.Error{Class: model.RequestFailed, Retryable: true, Cause: errors.New(redact(err.Error())),
			Message: "the connection to the model provider failed before the answer was complete"}
	}
	failed.Usage = usage
	return failed
}

// Do makes a request through client and watches its answer.
func (a *Attempt) Do(client *http.Client, request *http.Request) (*http.Response, error) {
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	a.idle.Reset(a.limits.Idle)
	response.Body = &body{ReadCloser: response.Body, attempt: a, left: maxAnswer}
	return response, nil
}

type body struct {
	io.ReadCloser
	attempt *Attempt
	left    int64
}

func (b *body) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if n > 0 {
		b.attempt.idle.Reset(b.attempt.limits.Idle)
	}
	return n, err
}
