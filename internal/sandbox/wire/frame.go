//go:build linux

// Package wire is what the server, the supervisor of a sandbox and the guest inside it say to each other: JSON in frames
// with a length before them, over sockets that nobody else can reach.
//
// The guest runs next to the agent, so whatever comes from it is read as hostile: frames are bounded, JSON is strict, and
// nothing that it says is believed without a check.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
)

// MaxFrame bounds one message in bytes. It leaves room for the largest file that a write call may carry.
const MaxFrame = 16 << 20

// ErrFrame says that the other side does not speak this protocol, or sent more than a message may hold.
var ErrFrame = errors.New("wire: malformed frame")

// Write sends one message in one call to w, so that messages of concurrent writers of a socket do not mix as long as
// they hold a lock around it.
func Write(w io.Writer, message any) error {
	frame, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("wire: encode message: %w", err)
	}
	if len(frame) > MaxFrame {
		return fmt.Errorf("%w: message of %d bytes, at most %d are allowed", ErrFrame, len(frame), MaxFrame)
	}
	out := make([]byte, 4+len(frame))
	binary.BigEndian.PutUint32(out, uint32(len(frame)))
	copy(out[4:], frame)
	_, err = w.Write(out)
	return err
}

// Read receives one message and takes not one byte more from r. At a clean end of the stream it returns io.EOF.
func Read(r io.Reader, message any) error {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(header[:])
	if size > MaxFrame {
		return fmt.Errorf("%w: message of %d bytes, at most %d are allowed", ErrFrame, size, MaxFrame)
	}
	frame, err := readGrowing(r, int(size))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(frame, message); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}

// readGrowing takes memory only for what has really arrived: a length alone costs its sender nothing.
func readGrowing(r io.Reader, size int) ([]byte, error) {
	const step = 1 << 20
	frame := make([]byte, 0, min(size, step))
	for len(frame) < size {
		n := min(size-len(frame), step)
		frame = append(frame, make([]byte, n)...)
		if _, err := io.ReadFull(r, frame[len(frame)-n:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return frame, nil
}
