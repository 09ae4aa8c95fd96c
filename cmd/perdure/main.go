// Command perdure runs durable sessions of AI agents: in one go (run), as a server (serve), or as a demonstration of what
// survives (demo).
//
// Exit status: 0 done; 1 an error, or the turn failed; 3 the session waits for somebody; 130 interrupted or left.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"charm.land/fang/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/terminal"
)

// The exit statuses.
const (
	statusError   = 1
	statusWaiting = 3
	statusLeft    = 130
)

func main() {
	perdure.Reexec()
	os.Exit(command())
}

// command is main without what every program that opens a server does first.
func command() int {
	root := &cobra.Command{
		Use:   "perdure",
		Short: "Sessions of AI agents that survive",
		Long: `Perdure keeps an agent's history, files, permissions and cost on a server, runs its turns,
and goes on where it was when something dies. It speaks the Claude Managed Agents API.`,
		Example: `  perdure run "Write a haiku about durable logs to haiku.txt"
  perdure demo
  perdure serve`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(runCommand(), serveCommand(), demoCommand(), keysCommand(), doctorCommand(), configCommand(), mockModelCommand(), versionCommand())
	status := 0
	settle(root, &status)
	// What is left to fang is misuse: flags and arguments that do not exist.
	if err := fang.Execute(context.Background(), root, fang.WithVersion(version()), fang.WithErrorHandler(showError)); err != nil {
		return statusError
	}
	return status
}

// settle makes every command tell its own errors. Fang asks the terminal for its colours before it tells one, which reads
// from standard input and waits where no answer comes.
func settle(cmd *cobra.Command, status *int) {
	for _, sub := range cmd.Commands() {
		settle(sub, status)
	}
	run := cmd.RunE
	if run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if err == nil {
			return nil
		}
		*status = statusError
		var exit *exitError
		if errors.As(err, &exit) {
			*status = exit.status
		}
		showError(colorprofile.NewWriter(cmd.ErrOrStderr(), os.Environ()), fang.Styles{}, err)
		return nil
	}
}

// exitError ends the command with a status. Err is nil if all was told already.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// showError tells what went wrong. Errors may hold what a server said.
func showError(w io.Writer, _ fang.Styles, err error) {
	if exit, ok := err.(*exitError); ok && exit.err == nil { //nolint:errorlint // joined with others, the others are told
		return
	}
	text := terminal.Clean(err.Error())
	style := lipgloss.NewStyle().Foreground(lipgloss.Red)
	for i, line := range strings.Split(text, "\n") {
		mark := "✗ "
		if i > 0 {
			mark = "  "
		}
		// Nobody is left to be told that standard error cannot be written.
		_, _ = fmt.Fprintln(w, style.Render(mark+line))
	}
	for _, misuse := range []string{"unknown command", "unknown flag", "unknown shorthand flag", "accepts ", "requires at least", "invalid argument", "flag needs an argument", "if any flags in the group", "required flag"} {
		if strings.HasPrefix(text, misuse) {
			_, _ = fmt.Fprintln(w, "  Try --help.")
			return
		}
	}
}
