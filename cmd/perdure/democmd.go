package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/client"
	"github.com/perdure/perdure/internal/demo"
	"github.com/perdure/perdure/internal/terminal"
)

func demoCommand() *cobra.Command {
	var keep bool
	var sandbox string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Kill a server twice in the middle of work, and count what was lost",
		Long: `Gives a real server a small scripted job with real tools in a real sandbox, kills it with SIGKILL in the middle of
a tool call and again in the middle of a model call, starts it again each time, and counts what was repeated and
what was lost. It needs no key and no network, takes less than half a minute, and leaves nothing behind.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			dir, err := os.MkdirTemp("", "perdure-demo-")
			if err != nil {
				return fmt.Errorf("make a directory for the demo: %w", err)
			}
			if !keep {
				defer func() {
					if removeErr := os.RemoveAll(dir); removeErr != nil {
						err = errors.Join(err, removeErr)
					}
				}()
			}
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return showDemo(ctx, demo.Options{Program: program, Args: demoArgs(dir, sandbox)}, dir, keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the demo's data directory")
	cmd.Flags().StringVar(&sandbox, "sandbox", "native", "native, or none to run the job's tools on this host without isolation")
	return cmd
}

// demoArgs make a server that has nothing to do with the user's own. The configuration file is one that says nothing.
func demoArgs(dir, sandbox string) []string {
	return []string{"serve", "--data", filepath.Join(dir, "data"), "--config", os.DevNull, "--sandbox", sandbox}
}

func showDemo(ctx context.Context, o demo.Options, dir string, keep bool) error {
	screen := terminal.NewScreen(os.Stderr, os.Stderr, os.Environ())
	transcript := terminal.NewTranscript(screen)
	o.Shown = func(e client.Event) { transcript.Show(e) }
	o.Told = screen.Warn
	screen.Note("A server of its own in " + dir + " gets a small scripted job with real tools.")
	account, err := demo.Run(ctx, o)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return &exitError{status: statusLeft}
		}
		return err
	}
	fmt.Print(demoAccount(account))
	if keep {
		fmt.Printf("\nThe data directory is kept: %s\n", dir)
	}
	if len(account.Kills) < 2 || !account.Clean() {
		return errors.New("the demo did not go as it should")
	}
	return nil
}

// demoAccount is what the demo says in the end.
func demoAccount(a *demo.Account) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe job is done, in %s with everything: %s\n\n", terminal.Duration(a.Took), terminal.CleanLine(a.Report))
	for i, k := range a.Kills {
		went := "the work went on after " + terminal.Duration(k.Next)
		if k.Moment == demo.InToolCall {
			went = "the tool ran on meanwhile, and its result came after " + terminal.Duration(k.Next)
		}
		fmt.Fprintf(&b, "  kill %d        SIGKILL %s; server ready again after %s; %s\n", i+1, k.Moment, terminal.Duration(k.Ready), went)
	}
	fmt.Fprintf(&b, "  model calls   %d made, %d of them made again because a kill cut them short\n", a.ModelCalls, a.ModelCallsCut)
	fmt.Fprintf(&b, "  tool calls    %d made, %d results; the one that a kill hit ran %d time(s), so %d repeated\n", a.ToolCalls, a.ToolResults, a.ToolRuns, max(0, a.ToolRuns-1))
	fmt.Fprintf(&b, "  events        %d in the log, %d lost\n", a.Events, a.Lost)
	return b.String()
}
