package harness

import (
	"fmt"
	"sync"
	"testing"
)

// shared is the one server that the tests of a package have in common.
var shared struct {
	sync.Mutex
	server *Server
	err    error
}

// Shared answers the server that all tests of the package use together, and starts it at the first call, whose options
// count. Main stops it. Tests that share a server must not kill it, nor count on what other tests do.
func Shared(tb testing.TB, options Options) *Server {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = Launch(options)
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.server
}

// stopShared stops the shared server. With showLog its log is in the error, whatever the reason.
func stopShared(showLog bool) error {
	shared.Lock()
	defer shared.Unlock()
	s := shared.server
	if s == nil {
		return nil
	}
	err := s.Stop()
	switch {
	case showLog && err != nil:
		return fmt.Errorf("%w\nlog of the shared server:\n%s", err, s.Log())
	case showLog:
		return fmt.Errorf("log of the shared server:\n%s", s.Log())
	}
	return err
}
