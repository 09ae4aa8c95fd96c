package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/terminal"
)

func configCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show or check the configuration",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	show := &cobra.Command{
		Use: "show", Short: "Print the configuration that a server would have, without secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := s.load()
			if err != nil {
				return err
			}
			text, err := l.YAML()
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), terminal.Clean(string(text)))
			return err
		},
	}
	check := &cobra.Command{
		Use: "check", Short: "Say whether the configuration can be used", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := s.load()
			if err != nil {
				return err
			}
			if err := l.Validate(); err != nil {
				return err
			}
			if len(l.Warnings) > 0 {
				for _, w := range l.Warnings {
					_, _ = fmt.Fprintln(cmd.ErrOrStderr(), terminal.CleanLine(w))
				}
				return &exitError{status: statusError}
			}
			from := "the defaults and the environment"
			if l.File != "" {
				from = l.File + " and the environment"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "The configuration (%s) is good.\n", terminal.CleanLine(from))
			return err
		},
	}
	for _, sub := range []*cobra.Command{show, check} {
		s.register(sub)
		cmd.AddCommand(sub)
	}
	return cmd
}
