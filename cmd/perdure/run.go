package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/perdure/perdure/cmd/perdure/internal/conversation"
	"github.com/perdure/perdure/internal/client"
	"github.com/perdure/perdure/internal/terminal"
)

type runFlags struct {
	settings
	remote
	session, agent, model, title, approve string
	json, verbose                         bool
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [MESSAGE]",
		Short: "Give an agent something to do and watch it",
		Long: `Sends a message to an agent in a session that survives, and shows the work: what the agent says on standard
output, all else on standard error. Without --url a server on the data directory runs for as long as the command.

Without --agent the session has a default agent with all built-in tools, made at first use. It may do everything
in its sandbox but asks before the tool write, so that approvals are seen. Without a key for a model, the scripted
model plays a small job with real tools.

A call that needs permission is asked about at the terminal. Where nobody is there to ask, the run ends with status
3 and the call stays pending; run --session goes on from there. Ctrl-C stops the turn, and a second one leaves.

Exit status: 0 done; 1 an error, or the turn failed; 3 the session waits for somebody; 130 interrupted or left.`,
		Example: `  perdure run "Find the three largest files in /usr and say what they are"
  perdure run --session sesn_… "Now the same for /var"
  perdure run --session sesn_… --approve all
  perdure run --json --approve all "…" | jq .type`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, strings.Join(args, " ")) },
	}
	f.settings.register(cmd)
	f.remote.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.session, "session", "", "go on with this session; without a message, settle and watch what it is at")
	flags.StringVar(&f.agent, "agent", "", "id of the agent of a new session (default: an agent with all built-in tools)")
	flags.StringVar(&f.model, "model", "", "model of a new session (default: the agent's, or the server's)")
	flags.StringVar(&f.title, "title", "", "title of a new session")
	flags.StringVar(&f.approve, "approve", "", "calls that need permission: ask at the terminal, allow all, or none to leave them pending (default ask on a terminal, else none)")
	flags.BoolVar(&f.json, "json", false, "write each event of the session as a line of JSON, without previews")
	flags.BoolVar(&f.verbose, "verbose", false, "show the log of the server that runs for this command")
	return cmd
}

func (f *runFlags) check(message string) error {
	switch {
	case f.session == "" && strings.TrimSpace(message) == "":
		return errors.New(`say what is to be done: perdure run "…"`)
	case f.session != "" && (f.agent != "" || f.model != "" || f.title != ""):
		return errors.New("--agent, --model and --title are for new sessions; --session goes on with one as it is")
	}
	switch conversation.Approve(f.approve) {
	case "", conversation.Ask, conversation.All, conversation.None:
		return nil
	}
	return errors.New("--approve must be ask, all or none")
}

func (f *runFlags) run(cmd *cobra.Command, message string) (err error) {
	if err := f.check(message); err != nil {
		return err
	}
	screen := terminal.NewScreen(os.Stdout, os.Stderr, os.Environ())
	interrupts := heedSignals()
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)

	c, err := f.client(&f.settings, tellTrouble(screen))
	if err != nil {
		return err
	}
	defaultModel := remoteModel
	if c == nil {
		own, embedErr := f.embed(ctx, screen, cancel)
		if embedErr != nil {
			return inUse(embedErr, "Use that server:  perdure run --url http://127.0.0.1:8700 --api-key KEY …\nor a directory of your own:  perdure run --data DIR …")
		}
		defer func() {
			if closeErr := own.close(); closeErr != nil {
				err = errors.Join(err, closeErr)
			}
		}()
		c, defaultModel = own.client, own.defaultModel
	}
	defer c.Close()
	// Until the conversation begins, an interruption ends the command.
	preparing, stopPreparing := context.WithCancelCause(ctx)
	prepared := make(chan struct{})
	go func() {
		select {
		case <-interrupts:
			stopPreparing(&exitError{status: statusLeft})
		case <-prepared:
		}
	}()
	session, err := f.prepare(preparing, c, screen, defaultModel)
	close(prepared)
	if err == nil {
		err = context.Cause(preparing)
	}
	stopPreparing(nil)
	if err != nil {
		return err
	}
	return f.converse(ctx, c, screen, session, message, interrupts)
}

// converse has the conversation and tells how it ended.
func (f *runFlags) converse(ctx context.Context, c *client.Client, screen *terminal.Screen, session, message string, interrupts <-chan struct{}) error {
	o := conversation.Options{
		Session: session, Message: strings.TrimSpace(message), Approve: conversation.Approve(f.approve), Interrupts: interrupts,
		Screen: screen, JSON: f.json,
	}
	if term.IsTerminal(os.Stdin.Fd()) && term.IsTerminal(os.Stderr.Fd()) {
		o.Lines = typedLines()
	} else if o.Approve == conversation.Ask {
		screen.Warn("--approve ask has nobody to ask, since this is no terminal; a call that needs permission ends the run")
	}
	if o.Approve == "" {
		o.Approve = conversation.Ask
	}
	if screen.Live() && !f.json {
		o.Look = func(ctx context.Context) (*client.Session, error) {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return c.Look(ctx, session)
		}
	}
	began := time.Now()
	result, err := conversation.Run(ctx, c, o)
	if err != nil {
		return fmt.Errorf("%w\nThe session is %s; go on: %s", err, session, f.again(session))
	}
	f.tell(ctx, c, screen, session, result, time.Since(began))
	switch result.Outcome {
	case conversation.Done:
		return nil
	case conversation.Waiting:
		return &exitError{status: statusWaiting}
	case conversation.Interrupted, conversation.Left:
		return &exitError{status: statusLeft}
	default:
		return &exitError{status: statusError}
	}
}

// tell says how the run ended.
func (f *runFlags) tell(ctx context.Context, c *client.Client, screen *terminal.Screen, session string, result conversation.Result, took time.Duration) {
	e := terminal.Ending{Session: session, Took: took, Continue: f.again(session)}
	switch result.Outcome {
	case conversation.Done:
		e.How, e.Good = "done", true
	case conversation.Waiting:
		e.How = "waiting"
	case conversation.Interrupted:
		e.How = "stopped"
	case conversation.Left:
		e.How = "left; the session goes on from here when it is continued"
	default:
		e.How = "failed"
	}
	if result.Why != "" {
		e.How += ": " + result.Why
	}
	// What cannot be learned any more is left out: the run itself is over and told.
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if s, err := c.Look(ctx, session); err == nil {
		e.Cost = s.Usage.ListCost
	}
	if files, err := c.Outputs(ctx, session); err == nil {
		e.Files = files
	}
	screen.End(e)
}

// again is the command that goes on with the session.
func (f *runFlags) again(session string) string {
	words := []string{"perdure", "run"}
	for _, flag := range []struct{ name, value string }{{"--url", f.url}, {"--data", f.data}, {"--config", f.file}, {"--sandbox", f.sandbox}, {"--scripts", f.scripts}} {
		if flag.value != "" {
			words = append(words, flag.name, flag.value)
		}
	}
	return terminal.Quote(append(words, "--session", session)...) + ` "…"`
}

// heedSignals passes interruptions on for as long as the process lives. A third ends the process, whatever it waits for.
func heedSignals() <-chan struct{} {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	interrupts := make(chan struct{}, 8)
	go func() {
		for n := 1; ; n++ {
			s := <-signals
			if s == syscall.SIGTERM {
				n = max(n, 2)
				interrupts <- struct{}{} // whoever ends the process does not wait for the turn
			}
			if n > 2 {
				os.Exit(statusLeft)
			}
			interrupts <- struct{}{}
		}
	}()
	return interrupts
}

// typedLines gives the lines of standard input, whole ones only, until it ends. Lines beyond 64 KiB end it.
func typedLines() <-chan string {
	lines := make(chan string, 64)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(os.Stdin)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
	}()
	return lines
}

// tellAgain is how often it is told that a server does not answer.
const tellAgain = 15 * time.Second

// tellTrouble tells about a server that does not answer, without filling the screen.
func tellTrouble(screen *terminal.Screen) func(error, time.Duration) {
	var mu sync.Mutex
	var told time.Time
	return func(err error, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(told) > tellAgain {
			screen.Warn("the server does not answer; trying again (" + err.Error() + ")")
			told = time.Now()
		}
	}
}
