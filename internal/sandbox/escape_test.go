//go:build linux

package sandbox_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attempt is something that must fail inside of a sandbox.
type attempt struct {
	name string
	do   func() error // nil if it worked
}

// tryToEscape runs inside, as the agent would, and says of each attempt whether it was blocked.
func tryToEscape() {
	for _, a := range attempts() {
		if err := a.do(); err != nil {
			fmt.Printf("blocked  %s: %v\n", a.name, err)
		} else {
			fmt.Printf("ESCAPED  %s\n", a.name)
		}
	}
	for _, a := range allowed() {
		if err := a.do(); err != nil {
			fmt.Printf("BROKEN  %s: %v\n", a.name, err)
		}
	}
	fmt.Println("finished")
}

func create(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func openForWriting(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// readable fails for what cannot be read or holds nothing.
func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Read(make([]byte, 1))
	return err
}

func socket(domain, kind, protocol int) func() error {
	return func() error {
		fd, err := unix.Socket(domain, kind, protocol)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
}

func system(number uintptr, arguments ...uintptr) func() error {
	return func() error {
		var a [6]uintptr
		copy(a[:], arguments)
		if _, _, errno := syscall.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
}

func connect(network, address string) func() error {
	return func() error {
		conn, err := net.DialTimeout(network, address, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

func clone(flags uintptr) func() error {
	return func() error {
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		return cmd.Run()
	}
}

func link(target string) string {
	name := fmt.Sprintf("/workspace/link-%d", time.Now().UnixNano())
	_ = os.Symlink(target, name) // then the attempt fails for want of the link, which the count of links would show
	return name
}

func attempts() []attempt {
	var all []attempt
	add := func(name string, do func() error) { all = append(all, attempt{name, do}) }
	other, hostPID, server := os.Getenv("OTHER"), os.Getenv("HOST_PID"), os.Getenv("SERVER_PID")
	pid, _ := strconv.Atoi(hostPID)

	for _, dir := range []string{"/", "/usr", "/usr/bin", "/etc", "/etc/ssl/certs", "/root", "/home", "/var", "/var/tmp", "/dev", "/run", "/mnt", "/mnt/session", "/mnt/session/uploads", "/mnt/memory", "/proc", "/proc/sys"} {
		add("create a file in "+dir, func() error { return create(filepath.Join(dir, "escape")) })
	}
	for _, path := range []string{
		"/etc/shadow", "/root/.bashrc", "/proc/1/environ", "/proc/1/mem", "/proc/1/root/etc/shadow", "/proc/1/cwd/x", "/proc/1/exe", "/proc/kcore", "/proc/kallsyms",
		"/proc/keys", "/proc/timer_list", "/proc/kmsg", "/proc/modules", "/proc/cmdline", "/dev/kmsg", "/dev/mem", "/dev/vda", "/dev/sda", "/dev/kvm", "/dev/net/tun", "/dev/fuse",
		"/sys/kernel/uevent_seqnum", "/sys/fs/cgroup/cgroup.procs", other + "/files/workspace/secret", other + "/lock", "/workspace/../" + other + "/files/workspace/secret",
		"/workspace/../../../../etc/shadow", "/proc/" + hostPID + "/environ", "/proc/" + server + "/environ", "/proc/" + server + "/root/etc/shadow",
	} {
		add("read "+path, func() error { return readable(path) })
	}
	for _, target := range []string{"/etc/shadow", other + "/files/workspace/secret", "/proc/1/root/etc/shadow", "../../../../../../etc/shadow"} {
		add("read through a link to "+target, func() error { return readable(link(target)) })
	}
	add("write through a link to another session", func() error { return create(link(other+"/files/workspace") + "/x") })
	add("hard link out of /usr", func() error { return os.Link("/usr/bin/env", "/workspace/env") })
	add("hard link between mounts", func() error {
		return errors.Join(create("/workspace/h"), os.Link("/workspace/h", "/mnt/session/outputs/h"))
	})
	for _, path := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/ns_last_pid", "/proc/sysrq-trigger", "/proc/1/oom_score_adj",
		"/proc/1/mem", "/proc/acpi/wakeup", "/sys/kernel/uevent_helper", "/etc/passwd", "/usr/bin/env", "/etc/hosts", "/etc/resolv.conf",
	} {
		add("open for writing "+path, func() error { return openForWriting(path) })
	}
	for _, name := range []string{"uid_map", "gid_map"} {
		add("map the host's user 0 by "+name, func() error { return os.WriteFile("/proc/self/"+name, []byte("0 0 1"), 0) })
	}
	add("protect itself from the killer of memory", func() error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0) })
	add("see processes of the host", func() error {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return err
		}
		for _, e := range entries {
			n, err := strconv.Atoi(e.Name())
			if err != nil || n == 1 {
				continue
			}
			status, err := os.ReadFile("/proc/" + e.Name() + "/status")
			if err == nil && !strings.Contains(string(status), fmt.Sprintf("Uid:\t%d\t", os.Getuid())) {
				return nil
			}
		}
		return errors.New("all are of this sandbox")
	})
	add("find the server's secret", func() error {
		paths, err := filepath.Glob("/proc/*/environ")
		if err != nil {
			return err
		}
		for _, path := range paths {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), canary) {
				return nil
			}
		}
		return errors.New("nobody has it")
	})
	add("inherit a descriptor", func() error {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return err
		}
		for _, e := range entries {
			target, err := os.Readlink("/proc/self/fd/" + e.Name())
			if n, _ := strconv.Atoi(e.Name()); err == nil && n > 2 && !strings.HasPrefix(target, "anon_inode:[event") && !strings.HasPrefix(target, "/proc/") && !strings.HasPrefix(target, "/dev/pts/") {
				return nil
			}
		}
		return errors.New("there is none")
	})

	add("setuid", func() error { return syscall.Setuid(0) })
	add("setgid", func() error { return syscall.Setgid(0) })
	add("setgroups", func() error { return syscall.Setgroups([]int{0}) })
	add("become root by su", func() error { return exec.Command("/usr/bin/su", "-c", "true").Run() })
	add("become root by a program of one's own", func() error {
		// Its owner is not root, but even the owner's identity must not come with it.
		mode, err := exec.Command("/bin/sh", "-c", "cp /usr/bin/id /workspace/id && chmod 6755 /workspace/id && /workspace/id -u").Output()
		if err == nil && strings.TrimSpace(string(mode)) != "0" {
			return errors.New("it is this user's all the same")
		}
		return err
	})
	for name, kind := range map[string]uint32{"block": unix.S_IFBLK, "character": unix.S_IFCHR} {
		for _, dir := range []string{"/workspace", "/tmp", "/dev/shm"} {
			add("make a "+name+" device in "+dir, func() error { return unix.Mknod(dir+"/"+name, kind|0o600, int(unix.Mkdev(1, 1))) })
		}
	}
	add("chown to root", func() error { return errors.Join(create("/workspace/c"), os.Chown("/workspace/c", 0, 0)) })
	add("chroot", func() error { return syscall.Chroot("/tmp") })
	add("gain a capability", func() error {
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		d := [2]unix.CapUserData{{Effective: 1, Permitted: 1}}
		return unix.Capset(&h, &d[0])
	})
	add("allow new privileges again", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) })

	add("signal a process of the host", func() error { return syscall.Kill(pid, 0) })
	add("trace a process of the host", func() error { return syscall.PtraceAttach(pid) })
	add("signal process 1", func() error {
		if err := syscall.Kill(1, syscall.SIGKILL); err != nil {
			return err
		}
		_, err := os.Stat("/proc/1") // it takes no notice; else this process would not be there either
		return errors.Join(err, errors.New("it takes no notice"))
	})
	add("trace process 1", func() error { return syscall.PtraceAttach(1) })
	add("trace a child", func() error {
		child := exec.Command("/bin/sleep", "10")
		if err := child.Start(); err != nil {
			return err
		}
		defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
		return syscall.PtraceAttach(child.Process.Pid)
	})
	add("read the memory of process 1", func() error {
		var b [8]byte
		_, err := unix.ProcessVMReadv(1, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		return err
	})
	add("take a descriptor of process 1", func() error {
		fd, err := unix.PidfdOpen(1, 0)
		if err != nil {
			return err
		}
		_, err = unix.PidfdGetfd(fd, 3, 0)
		return err
	})
	add("see the descriptors of process 1", func() error { _, err := os.ReadDir("/proc/1/fd"); return err })

	for _, kind := range []string{"mnt", "net", "pid", "user", "uts", "ipc", "cgroup"} {
		add("enter process 1's namespace "+kind, func() error {
			fd, err := unix.Open("/proc/1/ns/"+kind, unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			return unix.Setns(fd, 0)
		})
	}
	add("clone a user namespace", clone(syscall.CLONE_NEWUSER))
	add("clone a mount namespace", clone(syscall.CLONE_NEWNS))
	add("clone a user and network namespace", clone(syscall.CLONE_NEWUSER|syscall.CLONE_NEWNET))
	add("unshare a user namespace", func() error { return unix.Unshare(unix.CLONE_NEWUSER) })
	add("clone3", system(unix.SYS_CLONE3, 0, 0))
	add("mount", func() error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "") })
	add("mount proc", func() error { return unix.Mount("proc", "/tmp", "proc", 0, "") })
	add("bind", func() error { return unix.Mount("/workspace", "/tmp", "", unix.MS_BIND, "") })
	add("remount writable", func() error { return unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, "") })
	add("unmount", func() error { return unix.Unmount("/proc/sys", unix.MNT_DETACH) })
	add("change a mount", func() error {
		return unix.MountSetattr(-1, "/usr", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	})
	add("pivot_root", func() error { return unix.PivotRoot("/tmp", "/tmp") })
	add("fsopen", func() error { _, err := unix.Fsopen("tmpfs", 0); return err })
	add("open_tree", func() error { _, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE); return err })

	buffer := make([]byte, 256)
	memory := uintptr(unsafe.Pointer(&buffer[0]))
	for name, number := range map[string]uintptr{
		"bpf": unix.SYS_BPF, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "userfaultfd": unix.SYS_USERFAULTFD, "io_uring_setup": unix.SYS_IO_URING_SETUP,
		"keyctl": unix.SYS_KEYCTL, "add_key": unix.SYS_ADD_KEY, "request_key": unix.SYS_REQUEST_KEY, "kexec_load": unix.SYS_KEXEC_LOAD, "init_module": unix.SYS_INIT_MODULE,
		"finit_module": unix.SYS_FINIT_MODULE, "fanotify_init": unix.SYS_FANOTIFY_INIT, "syslog": unix.SYS_SYSLOG, "open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT,
		"name_to_handle_at": unix.SYS_NAME_TO_HANDLE_AT, "swapon": unix.SYS_SWAPON, "quotactl": unix.SYS_QUOTACTL, "reboot": unix.SYS_REBOOT, "settimeofday": unix.SYS_SETTIMEOFDAY,
		"clock_settime": unix.SYS_CLOCK_SETTIME, "sethostname": unix.SYS_SETHOSTNAME, "acct": unix.SYS_ACCT, "vhangup": unix.SYS_VHANGUP, "mbind": unix.SYS_MBIND,
		"move_pages": unix.SYS_MOVE_PAGES, "kcmp": unix.SYS_KCMP,
	} {
		do := system(number, memory, memory, memory)
		add("system call "+name, func() error {
			err := do()
			if err != nil && !errors.Is(err, unix.EPERM) {
				return nil // the kernel looked at the arguments
			}
			return err
		})
	}
	add("type into the terminal", func() error { return system(unix.SYS_IOCTL, 1, unix.TIOCSTI, memory)() })

	for name, s := range map[string][3]int{
		"AF_VSOCK": {unix.AF_VSOCK, unix.SOCK_STREAM, 0}, "AF_PACKET": {unix.AF_PACKET, unix.SOCK_RAW, 0}, "AF_ALG": {unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		"AF_KEY": {unix.AF_KEY, unix.SOCK_RAW, 2}, "AF_XDP": {unix.AF_XDP, unix.SOCK_RAW, 0}, "raw IPv4": {unix.AF_INET, unix.SOCK_RAW, 1}, "raw IPv6": {unix.AF_INET6, unix.SOCK_RAW, 58},
		"netlink netfilter": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, "netlink uevent": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT},
		"AF_TIPC": {unix.AF_TIPC, unix.SOCK_STREAM, 0}, "AF_CAN": {unix.AF_CAN, unix.SOCK_RAW, 1}, "AF_BLUETOOTH": {unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
	} {
		add("socket "+name, socket(s[0], s[1], s[2]))
	}
	port := os.Getenv("HOST_PORT")
	add("connect to the host's loopback", connect("tcp", "127.0.0.1:"+port))
	add("connect to the host's loopback by IPv6", connect("tcp", "[::1]:"+port))
	add("connect to the host's abstract socket", connect("unix", "@"+os.Getenv("HOST_ABSTRACT")))
	add("connect to the host's socket by path", connect("unix", os.Getenv("HOST_SOCKET")))
	add("connect to a supervisor", connect("unix", other+"/sock"))
	for _, address := range []string{"169.254.169.254:80", "192.0.2.1:53", "10.0.0.1:53", "[2001:db8::1]:53"} {
		add("find a route to "+address, connect("udp", address))
	}
	add("add a route", func() error {
		return exec.Command("/bin/sh", "-c", "ip link add x type dummy || ip route add default dev lo").Run()
	})
	return all
}

// allowed is what must work, so that a blocked attempt means something.
func allowed() []attempt {
	return []attempt{
		{"write to the workspace", func() error { return create("/workspace/fine") }},
		{"write to /tmp", func() error { return create("/tmp/fine") }},
		{"write to the outputs", func() error { return create("/mnt/session/outputs/fine") }},
		{"write to the home directory", func() error { return create("/home/agent/fine") }},
		{"write to /dev/shm", func() error { return create("/dev/shm/fine") }},
		{"write to /dev/null", func() error { return openForWriting("/dev/null") }},
		{"unix socket", socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)},
		{"TCP socket", socket(unix.AF_INET, unix.SOCK_STREAM, 0)},
		{"netlink route", socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)},
		{"own loopback", func() error {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer listener.Close()
			return connect("tcp", listener.Addr().String())()
		}},
		{"start a program", func() error { return exec.Command("/bin/true").Run() }},
		{"read /etc/passwd", func() error { return readable("/etc/passwd") }},
		{"know its name", func() error { return exec.Command("/bin/sh", "-c", `[ "$(id -un)" = agent ]`).Run() }},
	}
}

func TestEscape(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	local := hostAt(t, dir)
	f, other := session(t, local, dir), session(t, local, dir)
	other.expect(bash("echo canary >secret; chmod 666 secret"), "(no output)")
	f.expect(bash("true"), "(no output)")
	if err := os.WriteFile(other.workspace("secret"), []byte("canary"), 0o666); err != nil {
		t.Fatal(err)
	}
	copyProgram(t, f.workspace("probe"))

	tcp, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	abstract := fmt.Sprintf("perdure-test-%d", os.Getpid())
	hidden, err := net.Listen("unix", "@"+abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer hidden.Close()
	path := filepath.Join(dir, "host.sock")
	plain, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	text, isError := f.run(bash(fmt.Sprintf("PERDURE_TEST_ESCAPE=1 OTHER=%s HOST_PID=%d SERVER_PID=%d HOST_PORT=%d HOST_ABSTRACT=%s HOST_SOCKET=%s ./probe",
		other.dir, other.guest(), os.Getpid(), tcp.Addr().(*net.TCPAddr).Port, abstract, path)))
	if isError || !strings.HasSuffix(text, "finished") {
		t.Fatalf("the probe did not come to its end: %s\n%s", text, f.log())
	}
	blocked := 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "blocked") {
			blocked++
		} else if !strings.HasPrefix(line, "finished") {
			t.Error(strings.TrimSpace(line))
		}
	}
	if want := len(attempts()); blocked != want {
		t.Errorf("%d attempts were blocked, want %d:\n%s", blocked, want, text)
	}
	// After all of that, the sandbox is still the same.
	f.expect(bash("echo still here"), "still here")
}

// copyProgram copies this program. Another process does it: a file that is open for writing here could be so in any child
// that is being started at the time, and could then not be executed.
func copyProgram(t testing.TB, to string) {
	t.Helper()
	from := fmt.Sprintf("/proc/%d/exe", os.Getpid())
	if output, err := exec.Command("cp", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if err := os.Chmod(to, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestEscapeByFileTools(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.expect(bash("ln -s /etc link; ln -s /etc/hostname file; ln -s /tmp/../etc/new dangling; ln -s /proc/self/root/etc magic; ln -s loop loop; mkfifo fifo; mkdir d"), "(no output)")
	for _, c := range []struct {
		tool  string
		input map[string]any
	}{
		{"read", map[string]any{"file_path": "/etc/passwd"}},
		{"read", map[string]any{"file_path": "../etc/passwd"}},
		{"read", map[string]any{"file_path": "file"}},
		{"read", map[string]any{"file_path": "link/passwd"}},
		{"read", map[string]any{"file_path": "magic/passwd"}},
		{"read", map[string]any{"file_path": "loop"}},
		{"read", map[string]any{"file_path": "fifo"}},
		{"read", map[string]any{"file_path": "/dev/zero"}},
		{"read", map[string]any{"file_path": "/proc/1/environ"}},
		{"read", map[string]any{"file_path": "a\x00b"}},
		{"write", map[string]any{"file_path": "link/new/dir/f", "content": "x"}},
		{"write", map[string]any{"file_path": "dangling", "content": "x"}},
		{"write", map[string]any{"file_path": "/etc/passwd", "content": "x"}},
		{"write", map[string]any{"file_path": "../../x", "content": "x"}},
		{"write", map[string]any{"file_path": "d", "content": "x"}},
		{"edit", map[string]any{"file_path": "file", "old_string": "s", "new_string": "x"}},
		{"glob", map[string]any{"pattern": "*", "path": "link"}},
		{"glob", map[string]any{"pattern": "../*"}},
		{"glob", map[string]any{"pattern": "/etc/*"}},
		{"grep", map[string]any{"pattern": "root", "path": "/etc"}},
		{"grep", map[string]any{"pattern": "root", "path": "magic"}},
	} {
		f.expectError(call(c.tool, c.input), "")
	}
	f.expect(call("grep", map[string]any{"pattern": "sandbox"}), "no matches") // through no link either
}

func TestLimits(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.spec.Limits.Processes = 60
	f.spec.Limits.MemoryBytes = 256 << 20
	f.spec.Limits.FileBytes = 1 << 20
	f.spec.Limits.TmpBytes = 2 << 20
	f.spec.Limits.OpenFiles = 200
	f.expect(bash("ulimit -n; ulimit -c"), "200\n0")
	f.expectError(bash("dd if=/dev/zero of=big bs=64k count=64 2>&1"), "153")
	f.expectError(bash("dd if=/dev/zero of=/tmp/big bs=64k count=64 2>&1"), "")
	f.expect(bash("stat -c %s big; df --output=size -B1M /tmp | tail -1 | tr -d ' '"), "1048576\n2")
	// The shell tries again for a long time before it gives up.
	f.expectError(call("bash", map[string]any{"command": "for i in $(seq 200); do sleep 30 & done", "timeout_ms": 2000}), "fork")
	f.expect(bash("pgrep -c sleep; true"), "0")
	switch f.host.Report().Enforced["memory"] {
	case "cgroup1", "cgroup2":
		text, _ := f.run(bash("head -c 1G /dev/zero | tail | wc -c; echo survived"))
		if !strings.HasSuffix(text, "survived") || strings.Contains(text, "1073741824") {
			t.Errorf("1 GiB fits into 256 MiB: %s", text)
		}
	default:
		text, _ := f.run(bash("head -c 1G /dev/zero | tail | wc -c; echo survived"))
		if !strings.HasSuffix(text, "survived") || !strings.Contains(text, "memory exhausted") {
			t.Errorf("1 GiB fits into a process of 256 MiB: %s", text)
		}
	}
	f.expect(bash("echo still here"), "still here")
}

// A server that is not root has the same sandboxes, by user namespaces.
func TestUnprivileged(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("this is the unprivileged run already")
	}
	dir := t.TempDir()
	const uid = 54321
	for _, path := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "test")
	copyProgram(t, program)
	cmd := exec.Command(program, "-test.run", "^(TestTools|TestShellKeepsState|TestEscape|TestEscapeByFileTools|TestInterrupt|TestServerKilled|TestSupervisorKilled|TestLimits|TestOutputs|TestUploads|TestStopKeepsFilesAndDestroyLeavesNothing|TestNetwork.*)$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir, "CI=true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}
