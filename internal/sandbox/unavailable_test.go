//go:build linux

package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/prerequisite"
	"github.com/perdure/perdure/internal/sandbox"
)

// openWithoutNamespaces is a server on a host that allows no user namespaces.
func openWithoutNamespaces() {
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		fmt.Println(err)
		return
	}
	local, err := sandbox.Open(context.Background(), sandbox.Options{Dir: os.Getenv("PERDURE_TEST_UNAVAILABLE"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("isolation:", local.Report().Isolation)
	_, err = local.Run(context.Background(), sandbox.Spec{Session: "sesn_x"}, bash("touch ran"))
	var unavailable *sandbox.UnavailableError
	fmt.Println("typed:", errors.As(err, &unavailable))
	fmt.Println(err)
}

// A host that cannot isolate runs nothing, and says what to do.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "PERDURE_TEST_UNAVAILABLE="+t.TempDir())
	// The limit belongs to a user namespace, so it is set in one of the test's own.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 777, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 777, HostID: os.Getgid(), Size: 1}},
		Credential:  &syscall.Credential{Uid: 777, Gid: 777, NoSetGroups: true},
		AmbientCaps: []uintptr{unix.CAP_SYS_RESOURCE},
	}
	output, err := cmd.CombinedOutput()
	if err != nil {
		prerequisite.Missing(t, "this host has no user namespaces to try it in: %v: %s", err, output)
	}
	for _, want := range []string{"isolation: unavailable", "typed: true", "sandbox unavailable", "user.max_user_namespaces", "Fix: raise the sysctl", "run the server as root"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("%q is missing from:\n%s", want, output)
		}
	}
}
