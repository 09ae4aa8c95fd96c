package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/model/mockserver"
	"github.com/perdure/perdure/internal/model/scripted"
)

func mockModelCommand() *cobra.Command {
	var listen, scripts, key string
	var strict bool
	cmd := &cobra.Command{
		Use:   "mock-model",
		Short: "Serve scripted models as an Anthropic-compatible /v1/messages",
		Long: `Serves scripted models as POST /v1/messages and GET /v1/models, to test programs that call a model. The model id
is the name of a script. With --strict it refuses what the real API refuses.`,
		Example: "  perdure mock-model --scripts ./scripts --strict",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			library, err := scripted.Builtin()
			if err != nil {
				return err
			}
			if scripts != "" {
				if err := library.Load(os.DirFS(scripts)); err != nil {
					return fmt.Errorf("scripts in %s: %w", scripts, err)
				}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop)
			listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
			if err != nil {
				return fmt.Errorf("listen: %w", err)
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "Scripted models at http://%s/v1/messages:\n", reachable(listener.Addr().String())); err != nil {
				return errors.Join(err, listener.Close())
			}
			for _, script := range library.Scripts() {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "  %s%s\n", scripted.Prefix, script.Name); err != nil {
					return errors.Join(err, listener.Close())
				}
			}
			return serveModel(ctx, listener, mockserver.New(mockserver.Config{Library: library, Strict: strict, APIKey: key}))
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8701", "address to listen on, host:port; port 0 takes a free one")
	cmd.Flags().StringVar(&scripts, "scripts", "", "directory of scripts, *.yaml, beside the built-in ones")
	cmd.Flags().StringVar(&key, "api-key", "", "key that requests must have (default: any, or none)")
	cmd.Flags().BoolVar(&strict, "strict", false, "refuse what the real API refuses")
	return cmd
}

// serveModel serves until ctx ends. Answers that are being streamed then are cut.
func serveModel(ctx context.Context, listener net.Listener, handler http.Handler) error {
	h := &http.Server{
		Handler: handler, BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	stopped := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stopped()
	if err := h.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
