//go:build !linux

package sandbox

import (
	"context"
	"errors"
)

// Reexec does nothing where there are no sandboxes.
func Reexec() {}

// Local needs Linux.
type Local struct{ Sandboxes }

// Close does nothing.
func (*Local) Close() error { return nil }

// StopAll does nothing.
func (*Local) StopAll(context.Context) error { return nil }

// Open fails: sandboxes need Linux.
func Open(context.Context, Options) (*Local, error) {
	return nil, errors.New("sandbox: sandboxes need Linux: run the server in a Linux container or virtual machine")
}
