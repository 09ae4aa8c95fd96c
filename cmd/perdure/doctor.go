package main

import (
	"errors"
	"fmt"
	"os"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/terminal"
)

func doctorCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what a server needs on this machine, and say what to do",
		Long: `Checks the configuration, the data directory, how fast its disk is, whether tools can be isolated, and whether
the model providers answer. Ends with status 1 if something does not work.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			l, err := s.load()
			if err != nil {
				return err
			}
			if err := l.Validate(); err != nil {
				return err
			}
			checks := []perdure.Check{{Name: "configuration", OK: true, Detail: "built-in defaults and the environment"}}
			if l.File != "" {
				checks[0].Detail = l.File
			}
			for _, w := range l.Warnings {
				checks = append(checks, perdure.Check{Name: "configuration", OK: true, Detail: w, Fix: "remove what does nothing, or correct it"})
			}
			server, err := openData(cmd.Context(), &s)
			if err != nil {
				return inUse(err, "Stop that server to check its directory, or check another with --data.")
			}
			defer func() { err = errors.Join(err, server.Close()) }()
			return report(cmd, append(checks, server.Checks(cmd.Context())...))
		},
	}
	s.register(cmd)
	return cmd
}

// report prints checks. It returns an error if one failed.
func report(cmd *cobra.Command, checks []perdure.Check) error {
	w := colorprofile.NewWriter(cmd.OutOrStdout(), os.Environ())
	failed := 0
	for _, c := range checks {
		mark, style := "✓", lipgloss.NewStyle().Foreground(lipgloss.Green)
		switch {
		case !c.OK:
			mark, style = "✗", lipgloss.NewStyle().Foreground(lipgloss.Red)
			failed++
		case c.Fix != "":
			mark, style = "!", lipgloss.NewStyle().Foreground(lipgloss.Yellow)
		}
		if _, err := fmt.Fprintf(w, "%s %s: %s\n", style.Render(mark), terminal.CleanLine(c.Name), terminal.CleanLine(c.Detail)); err != nil {
			return err
		}
		if c.Fix != "" {
			if _, err := fmt.Fprintf(w, "    → %s\n", terminal.CleanLine(c.Fix)); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(checks))
	}
	return nil
}
