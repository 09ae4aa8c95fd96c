package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
)

func serveCommand() *cobra.Command {
	var s settings
	var listen string
	var ready bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Runs the server until it is told to stop (SIGINT, SIGTERM). The first start makes an API key, prints it
once, and shows how to talk to the server. Sessions that were at work when a server died go on.`,
		Example: `  perdure serve
  ANTHROPIC_API_KEY=… perdure serve --listen 127.0.0.1:9000 --data /var/lib/perdure`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd, &s, listen, ready) },
	}
	s.register(cmd)
	cmd.Flags().StringVar(&listen, "listen", "", "address to listen on, host:port; port 0 takes a free one (default 127.0.0.1:8700)")
	cmd.Flags().BoolVar(&ready, "print-ready", false, `print one line of JSON when serving, {"url", "api_key" if one was made}, and nothing else`)
	return cmd
}

func serve(cmd *cobra.Command, s *settings, listen string, printReady bool) (err error) {
	l, err := s.load()
	if err != nil {
		return err
	}
	if listen != "" {
		l.Listen = listen
	}
	if err := l.Validate(); err != nil {
		return err
	}
	log := logger(os.Stderr, term.IsTerminal(os.Stderr.Fd()), l.Log)
	for _, w := range l.Warnings {
		log.Warn(w)
	}
	// After the first signal the default action is back, so that a second one ends the process whatever it does.
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	server, err := perdure.Open(ctx, options(l.Config, log))
	if err != nil {
		return inUse(err, "Stop that server, or use another directory with --data.")
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	// From here on serveOn closes the listener; before, an error ends the process.
	secret, err := firstKey(ctx, server)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	url := "http://" + reachable(listener.Addr().String())
	if l.Sandbox == "none" {
		log.Warn("TOOLS RUN WITHOUT ISOLATION: every agent can do on this host what this user can (sandbox=none)")
	}
	if !l.Loopback() {
		log.Warn("THE SERVER CAN BE REACHED FROM OTHER MACHINES, without encryption: put a proxy with TLS before it, or listen on 127.0.0.1", "listen", l.Listen)
	}
	log.Info("serving", "url", url, "data", l.Data, "version", version())
	if err := announce(cmd, printReady, url, secret, server); err != nil {
		return errors.Join(err, listener.Close())
	}
	err = serveOn(ctx, server, listener)
	log.Info("stopped")
	return err
}

// firstKey makes a key if there is none that works.
func firstKey(ctx context.Context, server *perdure.Server) (string, error) {
	keys, err := server.Keys(ctx)
	if err != nil {
		return "", err
	}
	for _, k := range keys {
		if k.Revoked.IsZero() {
			return "", nil
		}
	}
	secret, _, err := server.CreateKey(ctx, "first key")
	return secret, err
}

// reachable is the address that a client on this machine uses.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// modelLimit bounds how long the first start waits for a provider to name a model.
const modelLimit = 5 * time.Second

// announce tells where the server is.
func announce(cmd *cobra.Command, ready bool, url, secret string, server *perdure.Server) error {
	out := cmd.OutOrStdout()
	if ready {
		line, err := json.Marshal(struct { //nolint:gosec // this is the one place that tells the key
			URL    string `json:"url"`
			APIKey string `json:"api_key,omitempty"`
		}{url, secret})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", line)
		return err
	}
	if secret == "" {
		_, err := fmt.Fprintf(out, "Perdure serves %s\n", url)
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), modelLimit)
	defer cancel()
	text, err := quickstart(url, secret, server.DefaultModel(ctx))
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(out, text)
	return err
}
