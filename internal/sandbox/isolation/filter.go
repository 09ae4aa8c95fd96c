//go:build linux

package isolation

import (
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// forbidden system calls fail with EPERM. They change what processes see of the system, reach into other processes, or
// open parts of the kernel that no tool of an agent needs and that had holes.
var forbidden = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_SETNS, unix.SYS_UNSHARE,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD, unix.SYS_PROCESS_MADVISE,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_ACCT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SYSLOG, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP,
	unix.SYS_MBIND, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES, unix.SYS_SET_MEMPOLICY,
}

// newNamespace are the flags of clone that make one.
const newNamespace = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID |
	unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// Offsets in struct seccomp_data: arguments are 64 bits, of which the low half comes first.
const (
	offsetNumber   = 0
	offsetArch     = 4
	offsetArgument = 16
)

const firstX32 = 0x40000000

func load(offset uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offset, Size: 4} }
func argument(n uint32) bpf.Instruction  { return load(offsetArgument + 8*n) }

func allow() bpf.Instruction { return bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW} }
func refuse(errno unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// when runs the instructions after it, which must end in a return, if what was loaded is value.
func when(value uint32, then ...bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: value, SkipTrue: uint8(len(then))}}, then...)
}

func filterProgram() ([]unix.SockFilter, error) {
	if auditArch == 0 {
		return nil, fmt.Errorf("there is no system call filter for this processor: %w", unix.ENOTSUP)
	}
	var p []bpf.Instruction
	add := func(instructions ...bpf.Instruction) { p = append(p, instructions...) }
	add(load(offsetArch))
	add(bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1}, bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS})
	add(load(offsetNumber))
	add(bpf.JumpIf{Cond: bpf.JumpLessThan, Val: firstX32, SkipTrue: 1}, refuse(unix.ENOSYS))
	for _, number := range append(forbidden, forbiddenHere...) {
		add(when(number, refuse(unix.EPERM))...)
	}
	// The flags of clone3 are in memory, out of a filter's sight. The C library falls back to clone.
	add(when(unix.SYS_CLONE3, refuse(unix.ENOSYS))...)
	add(when(unix.SYS_CLONE,
		argument(0),
		bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: newNamespace, SkipTrue: 1},
		refuse(unix.EPERM),
		allow())...)
	// Typing into a terminal.
	const tioclinux = 0x541c
	ioctl := []bpf.Instruction{argument(1)}
	ioctl = append(ioctl, when(unix.TIOCSTI, refuse(unix.EPERM))...)
	ioctl = append(ioctl, when(tioclinux, refuse(unix.EPERM))...)
	add(when(unix.SYS_IOCTL, append(ioctl, allow())...)...)
	// Some families, above all AF_VSOCK, are not confined by a network namespace.
	inet := []bpf.Instruction{
		argument(1),
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_RAW, SkipTrue: 1},
		allow(),
		refuse(unix.EPERM),
	}
	netlink := append([]bpf.Instruction{argument(2)}, when(unix.NETLINK_ROUTE, allow())...)
	netlink = append(netlink, refuse(unix.EPERM))
	socket := []bpf.Instruction{argument(0)}
	socket = append(socket, when(unix.AF_UNIX, allow())...)
	socket = append(socket, when(unix.AF_NETLINK, netlink...)...)
	socket = append(socket, when(unix.AF_INET, inet...)...)
	socket = append(socket, when(unix.AF_INET6, inet...)...)
	add(when(unix.SYS_SOCKET, append(socket, refuse(unix.EAFNOSUPPORT))...)...)
	add(allow())

	raw, err := bpf.Assemble(p)
	if err != nil {
		return nil, fmt.Errorf("assemble the system call filter: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return filter, nil
}
