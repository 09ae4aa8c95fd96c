//go:build linux

package supervisor_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/perdure/perdure/internal/sandbox/isolation"
	"github.com/perdure/perdure/internal/sandbox/supervisor"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step  string
		errno syscall.Errno
		root  bool
		want  string
	}{
		{"namespaces", syscall.EPERM, false, "kernel.apparmor_restrict_unprivileged_userns"},
		{"namespaces", syscall.EACCES, false, "run the server as root"},
		{"namespaces", syscall.EPERM, true, "CAP_SYS_ADMIN"},
		{"namespaces", syscall.ENOSPC, false, "user.max_user_namespaces"},
		{"mount proc", syscall.EPERM, false, "systempaths=unconfined"},
		{"mount a tmpfs on /", syscall.EPERM, true, "CAP_SYS_ADMIN"},
		{"restrict /usr", syscall.ENOSYS, false, "Linux 5.12"},
		{"set the host name", syscall.EPERM, false, "sethostname"},
		{"install the system call filter", syscall.EINVAL, false, "CONFIG_SECCOMP_FILTER"},
		{"become the guest", syscall.EACCES, true, "executable"},
		{"something else", syscall.EIO, true, "supervisor's log"},
	} {
		p := supervisor.Explain(&isolation.Failure{Step: c.step, Errno: int(c.errno), Text: c.errno.Error()}, c.root)
		if !strings.Contains(p.Fix, c.want) || !strings.Contains(p.Why, c.step) || p.What == "" {
			t.Errorf("%s: %v: got %+v, want a fix with %q", c.step, c.errno, p, c.want)
		}
	}
}
