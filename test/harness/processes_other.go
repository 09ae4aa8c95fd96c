//go:build !linux

package harness

import "syscall"

// attributes of a server's process. A process group of its own keeps the signals of a terminal away: they are for the test.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// endProcesses does nothing where processes cannot be told apart by the file they run from.
func (s *Server) endProcesses() error { return nil }

// Processes is not known here.
func (s *Server) Processes() (int, error) { return 0, nil }
