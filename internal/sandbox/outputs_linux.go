package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/perdure/perdure/internal/sandbox/beneath"
)

// Outputs implements Sandboxes.
func (l *Local) Outputs(ctx context.Context, session string, limit int) ([]Output, error) {
	if err := checkSession(session); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	dir, err := beneath.Directory(l.dir(session).Outputs())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox: list outputs: %w", err)
	}
	defer dir.Close()
	found, cut, err := beneath.Walk(dir, limit)
	if err != nil {
		return nil, fmt.Errorf("sandbox: list outputs: %w", err)
	}
	if cut {
		l.options.Logger.Warn("not all output files are listed", "session", session, "listed", len(found))
	}
	outputs := make([]Output, len(found))
	for i, f := range found {
		outputs[i] = Output{Path: f.Path, Size: f.Info.Size(), Modified: f.Info.ModTime()}
	}
	return outputs, nil
}

// OpenOutput implements Sandboxes.
func (l *Local) OpenOutput(ctx context.Context, session, path string) (io.ReadCloser, error) {
	if err := checkSession(session); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	dir, err := beneath.Directory(l.dir(session).Outputs())
	if err != nil {
		return nil, fmt.Errorf("sandbox: open an output: %w", err)
	}
	defer dir.Close()
	f, _, err := beneath.File(dir, path)
	if err != nil {
		return nil, fmt.Errorf("sandbox: open an output: %w", err)
	}
	return f, nil
}
