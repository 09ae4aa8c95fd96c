package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/model"
)

const (
	startLimit = 15 * time.Second
	stopLimit  = 10 * time.Second
	maxLog     = 16 << 10
)

// process is the server, started again after each kill on the same directory and address.
type process struct {
	program string
	args    []string
	url     string
	key     model.Secret
	command *exec.Cmd
	exited  chan struct{}
	log     tail
}

// start starts the server and waits until it serves.
func (p *process) start(ctx context.Context) error {
	listen := "127.0.0.1:0"
	if p.url != "" {
		u, err := url.Parse(p.url)
		if err != nil {
			return fmt.Errorf("read the address of the server: %w", err)
		}
		listen = u.Host
	}
	// Its end is not the context's: it is killed on purpose, and in the end asked to stop.
	command := exec.CommandContext(context.WithoutCancel(ctx), p.program, append(slices.Clone(p.args), "--listen", listen, "--print-ready")...)
	// A process group of its own: Ctrl-C reaches the demo, which stops the server.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Stderr = &p.log
	command.Env = environment()
	// A pipe of our own, so that Wait does not depend on who else has the other end.
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	command.Stdout = writer
	err = command.Start()
	if closeErr := writer.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start the server: %w", err), reader.Close())
	}
	p.command, p.exited = command, make(chan struct{})
	go func(exited chan struct{}) {
		// How it ended is no news: it is killed on purpose, or its log says why.
		_ = command.Wait()
		close(exited)
	}(p.exited)
	ready := make(chan []byte, 1)
	go func() {
		defer reader.Close()
		line, _ := bufio.NewReader(io.LimitReader(reader, 64<<10)).ReadBytes('\n')
		ready <- line
	}()
	timer := time.NewTimer(startLimit)
	defer timer.Stop()
	select {
	case line := <-ready:
		return p.read(line)
	case <-timer.C:
		return fmt.Errorf("the server did not serve within %s:\n%s", startLimit, p.log.String())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// environment leaves out what could make the server another one than the demo's: its own settings, and model providers.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		for _, prefix := range []string{"PERDURE_", "ANTHROPIC_", "OPENAI_"} {
			if strings.HasPrefix(e, prefix) {
				return true
			}
		}
		return false
	})
}

func (p *process) read(line []byte) error {
	var ready struct {
		URL    string `json:"url"`
		APIKey string `json:"api_key"`
	}
	if err := json.Unmarshal(bytes.TrimSpace(line), &ready); err != nil || ready.URL == "" {
		select { // its log is whole when it has ended
		case <-p.exited:
		case <-time.After(stopLimit):
		}
		return fmt.Errorf("the server ended before it served:\n%s", p.log.String())
	}
	p.url = ready.URL
	if ready.APIKey != "" {
		p.key = model.Secret(ready.APIKey)
	}
	return nil
}

// kill ends the server as a power cut would.
func (p *process) kill() error {
	if err := p.command.Process.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the server: %w", err)
	}
	<-p.exited
	return nil
}

// stop asks the server to end, and kills it if it does not.
func (p *process) stop() error {
	if p.command == nil {
		return nil
	}
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the server: %w", err)
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
		return p.kill()
	}
}

// tail keeps the end of a log.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if cut := len(t.text) - maxLog; cut > 0 {
		t.text = append(t.text[:0], t.text[cut:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}
