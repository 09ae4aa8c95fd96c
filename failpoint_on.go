//go:build failpoint

package perdure

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// killer kills this process at a point that PERDURE_FAILPOINT names: "name", or "name:n" for the n-th time that the
// process passes it. "@path" names a file that says so, which may appear at any time and is gone when the process dies, so
// that the process that follows it lives.
var killer struct {
	sync.Mutex
	armed  string
	passed int
}

func failpoint(name string) {
	armed := os.Getenv("PERDURE_FAILPOINT")
	path, inFile := strings.CutPrefix(armed, "@")
	if inFile {
		content, err := os.ReadFile(path)
		if err != nil {
			return
		}
		armed = string(content)
	}
	wanted, times, _ := strings.Cut(armed, ":")
	if wanted != name {
		return
	}
	n, err := strconv.Atoi(times)
	if err != nil {
		n = 1
	}
	killer.Lock()
	defer killer.Unlock()
	if armed != killer.armed {
		killer.armed, killer.passed = armed, 0
	}
	if killer.passed++; killer.passed < n {
		return
	}
	if inFile {
		_ = os.Remove(path)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}
