package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/client"
	"github.com/perdure/perdure/internal/terminal"
)

// keyring is where keys are: in a data directory, or behind a server.
type keyring interface {
	create(ctx context.Context, name string) (client.Key, error)
	list(ctx context.Context) ([]client.Key, error)
	revoke(ctx context.Context, id string) error
	Close() error
}

const keysElsewhere = `Either stop that server for this command, or ask it with one of its keys:
  perdure keys … --url http://127.0.0.1:8700 --api-key KEY`

func keysCommand() *cobra.Command {
	var s settings
	var r remote
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make, list and revoke API keys",
		Long: `Makes, lists and revokes API keys. Without --url the data directory is opened, which no server may be using.
With --url and --api-key a running server is asked.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	with := func(act func(cmd *cobra.Command, keys keyring, args []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) (err error) {
			keys, err := openKeys(cmd.Context(), &s, &r)
			if err != nil {
				return inUse(err, keysElsewhere)
			}
			defer func() { err = errors.Join(err, keys.Close()) }()
			return act(cmd, keys, args)
		}
	}
	create := &cobra.Command{
		Use: "create NAME", Short: "Make a key; it is shown once", Args: cobra.ExactArgs(1),
		RunE: with(func(cmd *cobra.Command, keys keyring, args []string) error {
			k, err := keys.create(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), terminal.CleanLine(k.Secret)); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "Key %s is made. It is not shown again.\n", terminal.CleanLine(k.ID))
			return err
		}),
	}
	list := &cobra.Command{
		Use: "list", Short: "List the keys", Args: cobra.NoArgs,
		RunE: with(func(cmd *cobra.Command, keys keyring, _ []string) error {
			all, err := keys.list(cmd.Context())
			if err != nil {
				return err
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(table, "ID\tNAME\tKEY\tMADE\tREVOKED")
			for _, k := range all {
				revoked := "-"
				if k.Revoked != nil {
					revoked = *k.Revoked
				}
				_, _ = fmt.Fprintf(table, "%s\t%s\t%s…\t%s\t%s\n", terminal.CleanLine(k.ID), terminal.CleanLine(k.Name), terminal.CleanLine(k.Hint), terminal.CleanLine(k.Created), terminal.CleanLine(revoked))
			}
			return table.Flush()
		}),
	}
	revoke := &cobra.Command{
		Use: "revoke ID", Short: "Make a key useless for good", Args: cobra.ExactArgs(1),
		RunE: with(func(cmd *cobra.Command, keys keyring, args []string) error {
			if err := keys.revoke(cmd.Context(), args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "Key %s is revoked.\n", terminal.CleanLine(args[0]))
			return err
		}),
	}
	for _, sub := range []*cobra.Command{create, list, revoke} {
		s.register(sub)
		r.register(sub)
		cmd.AddCommand(sub)
	}
	return cmd
}

func openKeys(ctx context.Context, s *settings, r *remote) (keyring, error) {
	c, err := r.client(s, nil)
	if err != nil {
		return nil, err
	}
	if c != nil {
		return remoteKeys{c}, nil
	}
	server, err := openData(ctx, s)
	if err != nil {
		return nil, err
	}
	return localKeys{server}, nil
}
