//go:build linux

package supervisor

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/perdure/perdure/internal/sandbox/isolation"
	"github.com/perdure/perdure/internal/sandbox/wire"
)

// Explain says what it means that a host refused a step of building the sandbox, and what to do about it.
// Root says whether the server is user 0.
func Explain(f *isolation.Failure, root bool) wire.Problem {
	p := wire.Problem{What: "a sandbox cannot be started", Why: fmt.Sprintf("%s: %s", f.Step, f.Text)}
	errno := syscall.Errno(f.Errno)
	asRoot := "run the server as root, which then uses a user of its own for each session"
	if root {
		asRoot = "give the server's container CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SETUID, CAP_SETGID, CAP_SETPCAP and CAP_CHOWN (or run it privileged), or run the server as another user than root"
	}
	switch {
	case f.Step == "namespaces" && errno == syscall.ENOSPC:
		p.Why += " (user.max_user_namespaces is used up or 0)"
		p.Fix = "raise the sysctl user.max_user_namespaces, or " + asRoot
	case f.Step == "namespaces" && (errno == syscall.EPERM || errno == syscall.EACCES):
		p.Why += " (the host or the container does not let this user make namespaces)"
		p.Fix = "set kernel.unprivileged_userns_clone=1 (Debian) or kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), or allow userns for the program " +
			"in an AppArmor profile; in a container, allow the system calls clone, unshare and mount; in a systemd unit, remove RestrictNamespaces; or " + asRoot
	case f.Step == "mount proc":
		p.Why += " (part of /proc is hidden from the server itself, as containers do)"
		p.Fix = "start the container with security-opt systempaths=unconfined (Docker) or unmask=ALL (Podman); in a systemd unit, remove ProcSubset=pid"
	case errno == syscall.ENOSYS:
		p.Fix = "use Linux 5.12 or later; in a systemd unit, allow the system calls of @mount"
	case strings.HasPrefix(f.Step, "mount") || strings.HasPrefix(f.Step, "bind") || strings.HasPrefix(f.Step, "restrict") || f.Step == "pivot_root":
		p.Fix = "let the server mount: in a container, add CAP_SYS_ADMIN or allow user namespaces; in a systemd unit, allow the system calls of @mount"
	case f.Step == "set the host name":
		p.Fix = "in a systemd unit, allow the system call sethostname"
	case f.Step == "install the system call filter":
		p.Fix = "use a kernel with CONFIG_SECCOMP_FILTER, on amd64 or arm64"
	case f.Step == "become the guest":
		p.Fix = "make the server's program executable for everybody, or put it on a file system that is not mounted noexec"
	default:
		p.Fix = "see the supervisor's log in the session's directory"
	}
	return p
}
