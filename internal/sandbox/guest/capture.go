//go:build linux

package guest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// capture is a terminal that commands print to. It lives as long as the guest: what background jobs print after their
// call belongs to whichever call runs then, as on any terminal, and to none if none runs. A program can break it, by
// making it the terminal of a session that ends; the next call gets another.
type capture struct {
	mu       sync.Mutex
	terminal *terminal // nil if there is none that works
	spool    *spool
	held     []byte // the beginning of a marker, perhaps
	marker   []byte // what detach waits for
	marked   chan struct{}
}

// terminal is a pair of which programs have one side, by its path, and the guest holds both.
type terminal struct {
	path    string
	control *os.File
	slave   *os.File
	modes   int // the descriptor of slave, for its modes
}

func openTerminal() (*terminal, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	control := os.NewFile(uintptr(fd), "terminal")
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a terminal: %w", err), control.Close())
	}
	path := "/dev/pts/" + strconv.Itoa(number)
	slave, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a terminal: %w", err), control.Close())
	}
	return &terminal{path: path, control: control, slave: os.NewFile(uintptr(slave), path), modes: slave}, nil
}

// plain makes output arrive as it was written, whatever a program did to the modes.
func (t *terminal) plain() error {
	modes, err := unix.IoctlGetTermios(t.modes, unix.TCGETS)
	if err != nil {
		return err
	}
	modes.Oflag &^= unix.OPOST
	modes.Lflag &^= unix.ECHO
	modes.Iflag &^= unix.IXON | unix.IXOFF
	return unix.IoctlSetTermios(t.modes, unix.TCSETS, modes)
}

func (c *capture) read(t *terminal) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := t.control.Read(buffer)
		c.take(buffer[:n])
		if err != nil {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.terminal == t {
		c.terminal = nil
	}
	_ = t.slave.Close() // both are of no use any more
	_ = t.control.Close()
}

// attach makes what is printed from here on part of a call, and returns the path of the terminal to print to.
func (c *capture) attach(s *spool) (path string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.terminal == nil || c.terminal.plain() != nil {
		t, err := openTerminal()
		if err == nil {
			err = t.plain()
		}
		if err != nil {
			return "", err
		}
		c.terminal = t
		go c.read(t)
	}
	c.spool, c.held, c.marker = s, nil, nil
	return c.terminal.path, nil
}

func (c *capture) take(chunk []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spool == nil {
		return
	}
	if c.marker == nil {
		c.spool.write(chunk)
		return
	}
	all := append(c.held, chunk...)
	c.held = nil
	if i := bytes.Index(all, c.marker); i >= 0 {
		c.spool.write(all[:i])
		c.spool = nil
		close(c.marked)
		return
	}
	if i := bytes.LastIndexByte(all, c.marker[0]); i >= 0 && len(all)-i < len(c.marker) {
		c.held = bytes.Clone(all[i:])
		all = all[:i]
	}
	c.spool.write(all)
}

// detach returns when everything that was printed before it has reached the spool. The kernel passes on what is written
// to a terminal in order but in its own time, so detach writes a mark and waits for it to come through.
func (c *capture) detach() {
	const patience = time.Second
	nonce := make([]byte, 8)
	_, _ = rand.Read(nonce) // never fails
	mark := fmt.Appendf(nil, "\x1eperdure-%x\x1e", nonce)
	marked := make(chan struct{})
	c.mu.Lock()
	t := c.terminal
	c.marker, c.marked = mark, marked
	c.mu.Unlock()
	if t != nil && t.slave.SetWriteDeadline(time.Now().Add(patience)) == nil {
		if _, err := t.slave.Write(mark); err == nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			select {
			case <-marked:
				return
			case <-timer.C: // a program stopped the terminal, flushed it or ended it
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spool != nil {
		c.spool.write(c.held)
	}
	c.spool, c.held = nil, nil
}
