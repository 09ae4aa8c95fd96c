package attempt

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// slow is a transport whose answers come in pieces, one after each pause, and end with the request's context.
type slow struct {
	pauses []time.Duration
}

func (s slow) RoundTrip(request *http.Request) (*http.Response, error) {
	reader, writer := io.Pipe()
	go func() {
		for _, pause := range s.pauses {
			select {
			case <-time.After(pause):
				if _, err := writer.Write([]byte("x")); err != nil {
					return
				}
			case <-request.Context().Done():
				writer.CloseWithError(request.Context().Err())
				return
			}
		}
		writer.Close()
	}()
	return &http.Response{StatusCode: http.StatusOK, Body: reader, Request: request}, nil
}

// read makes an attempt and counts every byte that is not a ping as heard.
func read(try *Attempt, transport http.RoundTripper, heard bool) (int, error) {
	request, err := http.NewRequestWithContext(try.Context(), http.MethodGet, "http://model.invalid/", nil)
	if err != nil {
		return 0, err
	}
	response, err := try.Do(&http.Client{Transport: transport}, request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	total, buffer := 0, make([]byte, 10)
	for {
		n, err := response.Body.Read(buffer)
		total += n
		if n > 0 && heard {
			try.Heard()
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

func same(text string) string { return text }

func repeat(n int, pause time.Duration) (pauses []time.Duration) {
	for range n {
		pauses = append(pauses, pause)
	}
	return pauses
}

func TestEveryAttemptEnds(t *testing.T) {
	limits := Limits{Idle: 10 * time.Second, Quiet: time.Minute, Total: 10 * time.Minute}
	for name, test := range map[string]struct {
		pauses []time.Duration
		heard  bool
		want   string
		after  time.Duration
	}{
		"in time":       {repeat(3, 9*time.Second), true, "", 27 * time.Second},
		"idle at first": {[]time.Duration{time.Hour}, true, "sent nothing for 10s", 10 * time.Second},
		"idle later":    {append(repeat(3, 5*time.Second), time.Hour), true, "sent nothing for 10s", 25 * time.Second},
		"only pings":    {repeat(100, 9*time.Second), false, "sent nothing but signs of life for 1m0s", time.Minute},
		"for ever":      {repeat(1000, 9*time.Second), true, "did not end its answer within 10m0s", 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				try := Begin(t.Context(), limits)
				defer try.Stop()
				start := time.Now()
				_, err := read(try, slow{test.pauses}, test.heard)
				if took := time.Since(start); took != test.after {
					t.Errorf("it took %s, not %s", took, test.after)
				}
				if test.want == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				var failed *model.Error
				if err := try.Failed(err, same, model.Usage{InputTokens: 3}); !errors.As(err, &failed) || !failed.Retryable ||
					!strings.Contains(failed.Message, test.want) || failed.Usage.InputTokens != 3 {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestTheCallersCauseComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		try := Begin(ctx, Limits{Idle: time.Minute})
		defer try.Stop()
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err := read(try, slow{[]time.Duration{time.Hour}}, true)
		used := model.Usage{InputTokens: 7}
		var failed *model.Error
		if err := try.Failed(err, same, used); !errors.Is(err, cause) || !errors.As(err, &failed) || failed.Usage != used || failed.Retryable {
			t.Errorf("got %v", err)
		}
	})
}

func TestAnAnswerWithoutEndIsCut(t *testing.T) {
	try := Begin(t.Context(), Limits{})
	defer try.Stop()
	endless := roundTrip(func(request *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(zeros{}), Request: request}, nil
	})
	request, err := http.NewRequestWithContext(try.Context(), http.MethodGet, "http://model.invalid/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := try.Do(&http.Client{Transport: endless}, request)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, response.Body)
	if n != maxAnswer || !errors.Is(err, errTooLong) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
