package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxFrame bounds one SSE frame. The largest that a server has reason to send echoes a message of the largest request
// body, 32 MiB.
const maxFrame = 40 << 20

// errFrameTooLarge ends a stream for good, since the same frame would come again.
var errFrameTooLarge = fmt.Errorf("the server sent an event of more than %d MiB", maxFrame>>20)

// frame is one dispatched SSE event. A comment, or a block without data, is no frame.
type frame struct {
	event string
	id    string // the last id that the stream had, as the standard has it
	data  []byte
}

// frameReader reads SSE frames: lines end with LF, CR or CRLF, and a block that the stream cuts short is dropped.
type frameReader struct {
	r      *bufio.Reader
	limit  int
	id     string
	began  bool // a byte order mark can only be at the beginning
	skipLF bool // the last line ended with CR
}

func newFrameReader(r io.Reader, limit int) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// next returns the next frame, or io.EOF at the end of the stream.
func (f *frameReader) next() (frame, error) {
	var out frame
	var data bytes.Buffer
	hasData := false
	budget := f.limit
	for {
		line, err := f.line(&budget)
		if err != nil {
			return frame{}, err
		}
		if len(line) == 0 {
			if hasData {
				out.id = f.id
				out.data = data.Bytes()
				return out, nil
			}
			out = frame{}
			budget = f.limit
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			out.event = string(value)
		case "data":
			if hasData {
				data.WriteByte('\n')
			}
			data.Write(value)
			hasData = true
		case "id":
			if !bytes.ContainsRune(value, 0) {
				f.id = string(value)
			}
		}
	}
}

// line reads one line without its end, and takes its length from the budget of the frame.
func (f *frameReader) line(budget *int) ([]byte, error) {
	var line []byte
	for {
		b, err := f.r.ReadByte()
		if err != nil {
			if errors.Is(err, io.EOF) && len(line) > 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if f.skipLF {
			f.skipLF = false
			if b == '\n' {
				continue
			}
		}
		if b == '\n' || b == '\r' {
			f.skipLF = b == '\r'
			if !f.began {
				f.began = true
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			return line, nil
		}
		if *budget--; *budget < 0 {
			return nil, errFrameTooLarge
		}
		line = append(line, b)
	}
}
