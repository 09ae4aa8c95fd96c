package client

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

type shownFrame struct{ Event, ID, Data string }

func readFrames(r io.Reader, limit int) ([]shownFrame, error) {
	var out []shownFrame
	f := newFrameReader(r, limit)
	for {
		fr, err := f.next()
		if err != nil {
			return out, err
		}
		out = append(out, shownFrame{fr.event, fr.id, string(fr.data)})
	}
}

func TestFrames(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []shownFrame
		err  error
	}{
		"plain":            {"event: a\ndata: 1\n\nevent: b\ndata: 2\n\n", []shownFrame{{"a", "", "1"}, {"b", "", "2"}}, io.EOF},
		"crlf":             {"event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", []shownFrame{{"a", "", "1"}, {"", "", "2"}}, io.EOF},
		"cr":               {"event: a\rdata: 1\r\r", []shownFrame{{"a", "", "1"}}, io.EOF},
		"byte order mark":  {"\ufeffdata: 1\n\n", []shownFrame{{"", "", "1"}}, io.EOF},
		"id stays":         {"id: 7\ndata: 1\n\ndata: 2\n\n", []shownFrame{{"", "7", "1"}, {"", "7", "2"}}, io.EOF},
		"id with NUL":      {"id: 7\ndata: 1\n\nid: 8\x00\ndata: 2\n\n", []shownFrame{{"", "7", "1"}, {"", "7", "2"}}, io.EOF},
		"several data":     {"data: 1\ndata:2\ndata:  3\n\n", []shownFrame{{"", "", "1\n2\n 3"}}, io.EOF},
		"comment only":     {": ping\n\ndata: 1\n\n", []shownFrame{{"", "", "1"}}, io.EOF},
		"event, no data":   {"event: a\n\ndata: 1\n\n", []shownFrame{{"", "", "1"}}, io.EOF},
		"cut block":        {"data: 1\n\ndata: 2\n", []shownFrame{{"", "", "1"}}, io.EOF},
		"cut line":         {"data: 1\n\ndata: 2", []shownFrame{{"", "", "1"}}, io.ErrUnexpectedEOF},
		"unknown field":    {"what: ever\nretry: 5\ndata: 1\n\n", []shownFrame{{"", "", "1"}}, io.EOF},
		"field, no colon":  {"data\n\n", []shownFrame{{"", "", ""}}, io.EOF},
		"too large a line": {"data: 1\n\ndata: " + strings.Repeat("x", 64) + "\n\n", []shownFrame{{"", "", "1"}}, errFrameTooLarge},
		"too large in all": {strings.Repeat("data: x\n", 20) + "\n", nil, errFrameTooLarge},
		"endless comments": {strings.Repeat(":x\n", 100), nil, errFrameTooLarge},
		"blocks of comments are no frame of their own": {strings.Repeat(":x\n\n", 100) + "data: 1\n\n", []shownFrame{{"", "", "1"}}, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			for way, r := range map[string]io.Reader{"whole": strings.NewReader(c.in), "by bytes": iotest.OneByteReader(strings.NewReader(c.in))} {
				got, err := readFrames(r, 64)
				if !errors.Is(err, c.err) {
					t.Errorf("%s: ends with %v, want %v", way, err, c.err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s: %s", way, diff)
				}
			}
		})
	}
}

// FuzzFrames checks that how the bytes arrive does not matter, and that nothing makes the reader panic or exceed its
// limit.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("event: a\r\ndata: {}\r\n\r\n"))
	f.Add([]byte("id: 1\rdata: x\n\n: c\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, err := readFrames(bytes.NewReader(in), 128)
		pieces, err2 := readFrames(iotest.OneByteReader(bytes.NewReader(in)), 128)
		if (err == nil) != (err2 == nil) || !cmp.Equal(whole, pieces) {
			t.Errorf("whole: %v %v, by bytes: %v %v", whole, err, pieces, err2)
		}
		for _, fr := range whole {
			if len(fr.Data) > 128 {
				t.Errorf("a frame of %d bytes", len(fr.Data))
			}
		}
	})
}
