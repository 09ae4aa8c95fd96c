//go:build linux

package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// shown are directories and files of the host that programs need and that hold nothing of the host's own.
var shown = []string{
	"/usr",
	"/etc/alternatives", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs",
	"/etc/pki/ca-trust/extracted", "/etc/crypto-policies", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/localtime", "/etc/mime.types", "/etc/protocols", "/etc/services", "/etc/terminfo",
}

// masked would tell about the host, or let its state be changed.
var masked = []string{
	"/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/key-users", "/proc/kmsg", "/proc/timer_list", "/proc/sched_debug",
	"/proc/latency_stats", "/proc/sysrq-trigger", "/proc/modules", "/proc/config.gz", "/proc/vmallocinfo", "/proc/iomem", "/proc/ioports",
	"/proc/slabinfo", "/proc/pagetypeinfo", "/proc/interrupts", "/proc/diskstats", "/proc/partitions", "/proc/swaps", "/proc/cmdline",
	"/proc/acpi", "/proc/scsi", "/proc/driver", "/proc/dynamic_debug",
}

var readOnlyProc = []string{"/proc/sys", "/proc/bus", "/proc/irq", "/proc/fs"}

// root is a mount tree that is being made at a directory of the host.
type root string

func (r root) path(inside string) string { return filepath.Join(string(r), inside) }

// makeRoot makes the sandbox's root and moves into it. Nothing of the host's tree is left below.
func makeRoot(config Config) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return step("make mounts private", err)
	}
	r := root(config.Root)
	if err := r.tmpfs("/", 1<<20, 0o755, 0); err != nil {
		return err
	}
	for _, part := range []func(Config) error{r.system, r.proc, r.dev, r.temporary, r.binds} {
		if err := part(config); err != nil {
			return err
		}
	}
	if err := step("enter the root", unix.Chdir(string(r))); err != nil {
		return err
	}
	if err := step("pivot_root", unix.PivotRoot(".", ".")); err != nil {
		return err
	}
	if err := step("leave the host's root", unix.Unmount(".", unix.MNT_DETACH)); err != nil {
		return err
	}
	if err := step("enter the root", unix.Chdir("/")); err != nil {
		return err
	}
	for _, path := range []string{"/", "/run"} {
		if err := setReadOnly(path, 0); err != nil {
			return err
		}
	}
	return nil
}

func (r root) system(config Config) error {
	for _, path := range shown {
		if err := r.bindIfThere(path, path); err != nil {
			return err
		}
	}
	for _, path := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if target, err := os.Readlink(path); err == nil {
			if err := step("link "+path, os.Symlink(target, r.path(path))); err != nil {
				return err
			}
			continue
		}
		if err := r.bindIfThere(path, path); err != nil {
			return err
		}
	}
	uid := config.UID
	if uid == 0 {
		uid = insideUID
	}
	files := map[string]string{
		"/etc/passwd": fmt.Sprintf("root:x:0:0:root:/root:/usr/sbin/nologin\n%s:x:%d:%d::%s:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n", User, uid, uid, Home),
		"/etc/group":  fmt.Sprintf("root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", User, uid),
		"/etc/hosts":  "127.0.0.1 localhost sandbox\n::1 localhost\n", "/etc/hostname": "sandbox\n", "/etc/resolv.conf": "",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	}
	for path, text := range files {
		if err := step("write "+path, os.WriteFile(r.path(path), []byte(text), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

func (r root) proc(Config) error {
	if err := r.directory("/proc"); err != nil {
		return err
	}
	err := unix.Mount("proc", r.path("/proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err != nil {
		return step("mount proc", err)
	}
	for _, path := range readOnlyProc {
		target := r.path(path)
		if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := step("bind "+path, unix.Mount(target, target, "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
			return err
		}
		if err := setReadOnly(target, unix.AT_RECURSIVE); err != nil {
			return err
		}
	}
	nothing := r.path("/.nothing")
	if err := step("make an empty file", os.WriteFile(nothing, nil, 0o444)); err != nil {
		return err
	}
	for _, path := range masked {
		if err := r.mask(path, nothing); err != nil {
			return err
		}
	}
	return step("remove the empty file", os.Remove(nothing))
}

// mask covers a file with an empty one, and a directory with an empty one.
func (r root) mask(path, nothing string) error {
	target := r.path(path)
	info, err := os.Stat(target)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return step("mask "+path, err)
	}
	if info.IsDir() {
		err := unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "size=4k,mode=0555")
		return step("mask "+path, err)
	}
	if err := step("mask "+path, unix.Mount(nothing, target, "", unix.MS_BIND, "")); err != nil {
		return err
	}
	return setReadOnly(target, 0)
}

func (r root) dev(Config) error {
	if err := r.tmpfs("/dev", 64<<10, 0o755, unix.MS_NOEXEC); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		target := r.path("/dev/" + name)
		if err := step("make "+target, os.WriteFile(target, nil, 0o666)); err != nil {
			return err
		}
		if err := step("bind /dev/"+name, unix.Mount("/dev/"+name, target, "", unix.MS_BIND, "")); err != nil {
			return err
		}
		attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
		if err := step("restrict /dev/"+name, unix.MountSetattr(-1, target, 0, attr)); err != nil {
			return err
		}
	}
	if err := r.directory("/dev/pts"); err != nil {
		return err
	}
	err := unix.Mount("devpts", r.path("/dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,max=256")
	if err != nil {
		return step("mount devpts", err)
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := step("link /dev/"+name, os.Symlink(target, r.path("/dev/"+name))); err != nil {
			return err
		}
	}
	if err := r.tmpfs("/dev/shm", 64<<20, 0o1777, 0); err != nil {
		return err
	}
	return setReadOnly(r.path("/dev"), 0)
}

func (r root) temporary(config Config) error {
	if err := r.tmpfs("/tmp", config.TmpBytes, 0o1777, 0); err != nil {
		return err
	}
	if err := r.tmpfs("/run", 64<<10, 0o755, 0); err != nil {
		return err
	}
	// The guest's own directory holds the text of the command that runs.
	if err := r.tmpfs(Scratch, 32<<20, 0o700, unix.MS_NOEXEC); err != nil {
		return err
	}
	if config.UID != 0 {
		return step("give away "+Scratch, os.Lchown(r.path(Scratch), config.UID, config.UID))
	}
	return nil
}

func (r root) binds(config Config) error {
	for _, path := range []string{"/mnt/memory", "/var/tmp", "/root"} {
		if err := r.directory(path); err != nil {
			return err
		}
	}
	for _, b := range config.Binds {
		if err := r.bind(b.Source, b.Target, b.Writable); err != nil {
			return err
		}
	}
	return nil
}

func (r root) directory(path string) error {
	return step("make "+path, os.MkdirAll(r.path(path), 0o755))
}

func (r root) tmpfs(path string, size int64, mode uint32, flags uintptr) error {
	if err := r.directory(path); err != nil {
		return err
	}
	options := fmt.Sprintf("size=%d,mode=%04o,nr_inodes=%d", size, mode, max(512, size>>12))
	return step("mount a tmpfs on "+path, unix.Mount("tmpfs", r.path(path), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|flags, options))
}

func (r root) bindIfThere(source, target string) error {
	if _, err := os.Stat(source); err != nil {
		return nil //nolint:nilerr // hosts differ in what they have, and what cannot be seen is not shown
	}
	return r.bind(source, target, false)
}

// bind is recursive, because in a user namespace the mounts of the host below a directory cannot be taken off it.
func (r root) bind(source, target string, writable bool) error {
	info, err := os.Stat(source)
	if err != nil {
		return step("bind "+source, err)
	}
	if info.IsDir() {
		err = r.directory(target)
	} else if err = r.directory(filepath.Dir(target)); err == nil {
		err = step("make "+target, os.WriteFile(r.path(target), nil, 0o644))
	}
	if err != nil {
		return err
	}
	if err := step("bind "+source, unix.Mount(source, r.path(target), "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
		return err
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if !writable {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	return step("restrict "+target, unix.MountSetattr(-1, r.path(target), unix.AT_RECURSIVE, attr))
}

func setReadOnly(path string, flags uint) error {
	return step("make "+path+" read-only", unix.MountSetattr(-1, path, flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}))
}
