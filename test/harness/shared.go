package harness

import (
	"errors"
	"fmt"
	"sync"
	"testing"
)

// shared is the one server that the tests of a package have in common.
var shared struct {
	sync.Mutex
	server *Server
	failed bool
}

// Shared answers the server that all tests of the package use together, and starts it at the first call, whose options
// count. Main stops it. Tests that share a server must not kill it, nor count on what other tests do.
func Shared(tb testing.TB, options Options) *Server {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.failed {
		tb.Fatal("the shared server did not start; the first test that wanted it says why")
	}
	if shared.server == nil {
		s, err := Launch(options)
		shared.server, shared.failed = s, err != nil
		if err != nil {
			tb.Fatal(err)
		}
	}
	return shared.server
}

// stopShared stops the shared server. What is wrong with its end is an error; its log is in the error then, and with showLog.
func stopShared(showLog bool) error {
	shared.Lock()
	defer shared.Unlock()
	s := shared.server
	if s == nil {
		return nil
	}
	err := s.Stop()
	if err != nil || showLog {
		err = errors.Join(err, fmt.Errorf("log of the shared server:\n%s", s.Log()))
	}
	return err
}
