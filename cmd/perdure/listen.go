package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/perdure/perdure"
)

const (
	// requestGrace is how long requests may go on when the server stops. Streams are ended after it.
	requestGrace = 500 * time.Millisecond
	stopGrace    = 5 * time.Second
)

// serveOn serves the API on the listener and drives sessions until ctx ends, or until one of the two fails. It returns
// when nothing runs any more. The server stays open.
func serveOn(ctx context.Context, server *perdure.Server, listener net.Listener) error {
	streams, endStreams := context.WithCancel(context.WithoutCancel(ctx))
	defer endStreams()
	h := &http.Server{
		Handler:     server.Handler(),
		BaseContext: func(net.Listener) context.Context { return streams },
		// Streams and uploads take as long as they take; the API sets a deadline for each of their writes.
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	group.Go(func() {
		if err := h.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serve: %w", err))
		}
	})
	group.Go(func() {
		if err := server.Run(ctx); err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("drive sessions: %w", err))
		}
	})
	<-ctx.Done()
	cause := context.Cause(ctx)
	timer := time.AfterFunc(requestGrace, endStreams)
	defer timer.Stop()
	grace, done := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer done()
	stopped := h.Shutdown(grace)
	if errors.Is(stopped, context.DeadlineExceeded) {
		// Clients that do not read are not waited for.
		stopped = h.Close()
	}
	group.Wait()
	if errors.Is(cause, context.Canceled) {
		cause = nil
	}
	return errors.Join(cause, stopped)
}
