package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// endSandboxes ends the sandboxes of a data directory, which outlive their server, and waits for their supervisors.
func endSandboxes(dir string) {
	below := []byte(filepath.Join(dir, "sandboxes") + "/")
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(line, below) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		process, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0) == nil {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, 5000)
		}
		_ = unix.Close(process)
	}
}
