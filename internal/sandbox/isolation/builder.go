//go:build linux

package isolation

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"
)

// Build is the builder's main function. It becomes the guest, or reports why it cannot and ends the process.
func Build() {
	// Namespaces, capabilities, the parent-death signal and the filter belong to a thread; the exec at the end makes
	// the thread that calls it the whole process.
	runtime.LockOSThread()
	unix.Umask(0o022) // what is made here is for another user to see
	socket := os.NewFile(builderSocket, "builder")
	syscall.CloseOnExec(builderSocket)
	err := build(socket)
	f := &Failure{Step: "start", Text: err.Error()}
	var step *stepError
	if errors.As(err, &step) {
		f.Step, f.Text = step.step, step.err.Error()
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		f.Errno = int(errno)
	}
	if text, err := json.Marshal(report{Failure: f}); err == nil {
		_, _ = socket.Write(text) // with the socket broken there is nobody to tell
	}
	os.Exit(1)
}

type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

func step(name string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{name, err}
}

// build returns only if it fails.
func build(socket *os.File) error {
	order := make([]byte, 1<<20)
	n, err := socket.Read(order)
	if err != nil {
		return step("read the order", err)
	}
	var config Config
	if err := json.Unmarshal(order[:n], &config); err != nil {
		return step("read the order", err)
	}
	program, err := openProgram(config.UID)
	if err != nil {
		return step("open the program", err)
	}
	// The limits are in force by now, so the sandbox sees its own cgroup as the root of all.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return step("cgroup namespace", err)
	}
	if err := makeRoot(config); err != nil {
		return err
	}
	if err := step("set the host name", unix.Sethostname([]byte("sandbox"))); err != nil {
		return err
	}
	if err := step("bring up loopback", bringUpLoopback()); err != nil {
		return err
	}
	if config.Egress {
		if err := step("listen for the proxy", sendListener(socket)); err != nil {
			return err
		}
	}
	if err := step("change directory", unix.Chdir(config.Workdir)); err != nil {
		return err
	}
	for _, limit := range config.Rlimits {
		err := syscall.Setrlimit(limit.Resource, &syscall.Rlimit{Cur: limit.Value, Max: limit.Value})
		if err != nil {
			return step(fmt.Sprintf("set resource limit %d", limit.Resource), err)
		}
	}
	if err := dropPrivileges(config.UID); err != nil {
		return err
	}
	if err := step("install the system call filter", installFilter()); err != nil {
		return err
	}
	// Whatever this process was given without knowing it must not be seen inside.
	if err := step("close descriptors", unix.CloseRange(GuestSocket+1, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC)); err != nil {
		return err
	}
	return step("become the guest", syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", program), config.Arguments, config.Environment))
}

// openProgram opens this very program, which may be gone from the disk or replaced by a newer one. One that the sandbox's
// user may not execute is copied into memory.
func openProgram(uid int) (int, error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	info, err := self.Stat()
	if err != nil {
		return 0, err
	}
	if uid == 0 || info.Mode().Perm()&0o005 == 0o005 {
		return int(self.Fd()), nil
	}
	fd, err := unix.MemfdCreate("perdure", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return 0, err
	}
	memory := os.NewFile(uintptr(fd), "memfd")
	if _, err := io.Copy(memory, self); err != nil {
		return 0, err
	}
	if err := memory.Chmod(0o555); err != nil {
		return 0, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		return 0, err
	}
	// A file that is open for writing cannot be executed.
	readable, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return 0, err
	}
	if err := memory.Close(); err != nil {
		return 0, err
	}
	return int(readable.Fd()), nil
}

func bringUpLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// sendListener makes the socket on which the sandbox's programs find the proxy, and gives it to the supervisor: a socket
// stays in the network namespace that it was made in, so no path leads out of this one and the proxy still serves it.
func sendListener(socket *os.File) error {
	listener, err := net.Listen("tcp4", ProxyAddress) //nolint:noctx // it takes no time
	if err != nil {
		return err
	}
	f, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	text, err := json.Marshal(report{Egress: true})
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(int(socket.Fd()), text, unix.UnixRights(int(f.Fd())), nil, 0); err != nil {
		return err
	}
	return errors.Join(f.Close(), listener.Close())
}

func dropPrivileges(uid int) error {
	for capability := uintptr(0); capability <= 63; capability++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) { // the kernel knows fewer
			return step("drop the bounding set", err)
		}
	}
	if uid != 0 {
		if err := syscall.Setgroups(nil); err != nil {
			return step("drop groups", err)
		}
		if err := syscall.Setresgid(uid, uid, uid); err != nil {
			return step("change group", err)
		}
		if err := syscall.Setresuid(uid, uid, uid); err != nil {
			return step("change user", err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return step("drop ambient capabilities", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return step("drop capabilities", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return step("forbid new privileges", err)
	}
	// A change of user cancels the parent-death signal.
	return step("die with the supervisor", unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
}

func installFilter() error {
	filter, err := filterProgram()
	if err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
