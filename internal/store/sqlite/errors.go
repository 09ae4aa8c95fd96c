package sqlite

import (
	"context"
	"errors"
	"fmt"
)

// The causes of a Fault, as an operator sees them.
var (
	ErrDiskFull = errors.New("the disk is full: free some space, the store goes on by itself")
	ErrReadOnly = errors.New("the database file cannot be written: check its owner, its mode and the mount")
	ErrIO       = errors.New("the disk failed to read or write: check the system log, the disk and the mount")
	ErrCorrupt  = errors.New("the database file is damaged: stop the server and restore a backup")
	ErrBusy     = errors.New("another program holds the database locked: close it")
	ErrTooBig   = errors.New("a single value exceeds the database's limit of 1 GB")
)

// Fault is a failure of the database or of the disk under it, as opposed to a refusal. Reads may go on working.
type Fault struct {
	// Doing says what the store was doing.
	Doing string
	// Cause is one of the causes above, or nil if it is none of them.
	Cause error
	Err   error
}

func (f *Fault) Error() string {
	if f.Cause == nil {
		return fmt.Sprintf("store: %s: %v", f.Doing, f.Err)
	}
	return fmt.Sprintf("store: %s: %v (%v)", f.Doing, f.Cause, f.Err)
}

// Unwrap gives errors.Is both the cause and what the driver said.
func (f *Fault) Unwrap() []error {
	if f.Cause == nil {
		return []error{f.Err}
	}
	return []error{f.Cause, f.Err}
}

// fault makes a Fault of what the driver returned. The end of a caller's context is no fault.
func fault(doing string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var inner *Fault
	if errors.As(err, &inner) {
		return &Fault{Doing: doing, Cause: inner.Cause, Err: inner.Err}
	}
	return &Fault{Doing: doing, Cause: cause(err), Err: err}
}

// LockedError says that another process, or another Open of this one, uses the data directory.
type LockedError struct {
	Dir string
	// PID is the holder's process id, 0 if it could not be read.
	PID int
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("data directory %s is used by another process: stop it, or choose another directory", e.Dir)
	}
	return fmt.Sprintf("data directory %s is used by process %d: stop it, or choose another directory", e.Dir, e.PID)
}

// PanicError is what Update returns when the function given to it panicked. Nothing of it was written.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("store: the write function panicked: %v\n%s", e.Value, e.Stack)
}

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// errExited is for a write function that ended its goroutine, as testing's FailNow does.
var errExited = errors.New("store: the write function ended the goroutine that it ran on, so nothing of its batch was written")
