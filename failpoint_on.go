//go:build failpoint

package perdure

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// killAt and killAfter come from PERDURE_FAILPOINT, which is "name" or "name:n": the process kills itself the n-th time
// that it passes the point.
var (
	killAt, killAfter = readFailpoint(os.Getenv("PERDURE_FAILPOINT"))
	passed            atomic.Int64
)

func readFailpoint(text string) (string, int64) {
	name, times, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(times, 10, 64)
	if err != nil {
		n = 1
	}
	return name, n
}

func failpoint(name string) {
	if name == killAt && passed.Add(1) == killAfter {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	}
}
