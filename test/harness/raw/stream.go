package raw

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// Frame is one event of a stream: the values of its lines.
type Frame struct {
	Event string
	ID    string
	Data  string
	Lines []string // all lines as sent, comments too
}

// Get is a value of the data by its path, as of package gjson.
func (f Frame) Get(path string) gjson.Result { return gjson.Get(f.Data, path) }

// Stream reads an event stream. It belongs to one goroutine.
type Stream struct {
	Header http.Header

	frames chan Frame
	end    error // why frames is closed
	cancel context.CancelFunc
}

// Stream opens an event stream, and fails the test if the answer is none. The stream is closed when the test ends.
func (c Client) Stream(tb testing.TB, path string, header ...string) *Stream {
	tb.Helper()
	s, refused, err := c.TryStream(path, header...)
	if err != nil {
		tb.Fatalf("open %s: %v", path, err)
	}
	if refused != nil {
		tb.Fatalf("open %s: %s", path, refused)
	}
	tb.Cleanup(s.Close)
	return s
}

// TryStream is Stream for those that may be refused; then the answer is in the second result. The caller closes the stream.
func (c Client) TryStream(path string, header ...string) (*Stream, *Response, error) {
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(limit, cancel) // for the headers; a stream itself may last
	response, err := c.send(ctx, http.MethodGet, path, nil, append([]string{"Accept", "text/event-stream"}, header...))
	timer.Stop()
	if err != nil {
		cancel()
		return nil, nil, err
	}
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		defer cancel()
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		return nil, &Response{response.StatusCode, response.Header, content}, err
	}
	s := &Stream{Header: response.Header, frames: make(chan Frame), cancel: cancel}
	go s.read(ctx, response.Body)
	return s, nil, nil
}

// Close ends the stream from the reader's side.
func (s *Stream) Close() { s.cancel() }

func (s *Stream) read(ctx context.Context, body io.ReadCloser) {
	defer close(s.frames)
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 32<<20)
	var f Frame
	for lines.Scan() {
		line := lines.Text()
		if line != "" {
			f.Lines = append(f.Lines, line)
			name, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch name {
			case "event":
				f.Event = value
			case "id":
				f.ID = value
			case "data":
				f.Data += value
			}
			continue
		}
		if len(f.Lines) > 0 {
			select {
			case s.frames <- f:
			case <-ctx.Done():
				s.end = ctx.Err()
				return
			}
		}
		f = Frame{}
	}
	s.end = lines.Err()
	if s.end == nil {
		s.end = io.EOF
	}
}

// Next is the next frame that is no ping. The error is io.EOF after the server ended the stream in good order.
func (s *Stream) Next() (Frame, error) {
	timer := time.NewTimer(limit) // pings do not lengthen it
	defer timer.Stop()
	for {
		f, err := s.next(timer)
		if err != nil || f.Event != "ping" && f.Data != "" {
			return f, err
		}
	}
}

// NextAny is the next frame, whatever it is.
func (s *Stream) NextAny() (Frame, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	return s.next(timer)
}

func (s *Stream) next(timer *time.Timer) (Frame, error) {
	select {
	case f, ok := <-s.frames:
		if !ok {
			return Frame{}, s.end
		}
		return f, nil
	case <-timer.C:
		return Frame{}, fmt.Errorf("no event within %v", limit)
	}
}

// Until reads frames up to the first for which found holds, and answers all of them with that one.
func (s *Stream) Until(tb testing.TB, found func(Frame) bool) []Frame {
	tb.Helper()
	var frames []Frame
	for {
		f, err := s.Next()
		if err != nil {
			tb.Fatalf("the stream ended after %v: %v", events(frames), err)
		}
		frames = append(frames, f)
		if found(f) {
			return frames
		}
	}
}

// UntilType reads frames up to the first event of this type.
func (s *Stream) UntilType(tb testing.TB, event string) []Frame {
	tb.Helper()
	return s.Until(tb, func(f Frame) bool { return f.Event == event })
}

// UntilEnd reads frames until the server ends the stream.
func (s *Stream) UntilEnd(tb testing.TB) []Frame {
	tb.Helper()
	var frames []Frame
	for {
		f, err := s.Next()
		if errors.Is(err, io.EOF) {
			return frames
		}
		if err != nil {
			tb.Fatalf("the stream broke after %v: %v", events(frames), err)
		}
		frames = append(frames, f)
	}
}

func events(frames []Frame) []string {
	names := make([]string, len(frames))
	for i, f := range frames {
		names[i] = f.Event
	}
	return names
}
