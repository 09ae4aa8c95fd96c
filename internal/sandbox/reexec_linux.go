package sandbox

import (
	"os"
	"syscall"

	"github.com/perdure/perdure/internal/sandbox/guest"
	"github.com/perdure/perdure/internal/sandbox/isolation"
	"github.com/perdure/perdure/internal/sandbox/supervisor"
)

// Reexec must be the first thing that main does in every program that calls Open, tests included. If this process was
// started to be a supervisor, or to build or inhabit a sandbox, it is that and Reexec does not return.
func Reexec() {
	if len(os.Args) == 0 {
		return
	}
	// These processes end at once: somebody waits for that, and whatever main may have planned for its exit is not theirs.
	switch os.Args[0] {
	case supervisor.Role:
		syscall.Exit(supervisor.Main())
	case isolation.BuilderRole:
		isolation.Build()
	case guest.Role:
		syscall.Exit(guest.Main())
	}
}
