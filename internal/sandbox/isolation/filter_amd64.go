//go:build linux

package isolation

import "golang.org/x/sys/unix"

const auditArch uint32 = unix.AUDIT_ARCH_X86_64

var forbiddenHere = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_USELIB, unix.SYS_MODIFY_LDT}
