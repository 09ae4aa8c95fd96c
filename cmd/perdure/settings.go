package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/config"
)

// settings are the flags of every command that opens a data directory.
type settings struct {
	data, file, sandbox, scripts string
}

func (s *settings) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.data, "data", "", "data directory (default ~/.perdure)")
	f.StringVar(&s.file, "config", "", "configuration file (default perdure.yaml in the data directory)")
	f.StringVar(&s.sandbox, "sandbox", "", "native, or none to run tools on this host without isolation (default native)")
	f.StringVar(&s.scripts, "scripts", "", "directory of scripts for scripted models")
}

// load reads the configuration and applies the flags to it. It is not validated yet.
func (s *settings) load() (*config.Loaded, error) {
	// Without a home directory the data directory has to be named, which Validate says.
	home, _ := os.UserHomeDir()
	l, err := config.Load(config.Sources{File: s.file, Data: s.data, Environ: os.Environ(), Home: home})
	if err != nil {
		return nil, err
	}
	if s.sandbox != "" {
		l.Sandbox = s.sandbox
	}
	if s.scripts != "" {
		l.ScriptsDir = s.scripts
	}
	return l, nil
}

// options are what the configuration means for the server.
func options(c config.Config, log *slog.Logger) perdure.Options {
	o := perdure.Options{
		Dir: c.Data, ScriptsDir: c.ScriptsDir, DefaultModel: c.DefaultModel, PricesFile: c.PricesFile,
		RuntimeCentsPerHour: *c.RuntimeCentsPerHour, Sandbox: c.Sandbox, AllowNetworks: c.AllowNetworks, SearchURL: c.SearchURL,
		Retry:           perdure.Retry{Attempts: c.Retry.Attempts, Base: c.Retry.Base, Cap: c.Retry.Cap},
		RequestsPerTurn: c.RequestsPerTurn, Log: log, Version: version(),
	}
	if o.RuntimeCentsPerHour == 0 {
		o.RuntimeCentsPerHour = -1 // for which the library takes its default otherwise
	}
	for _, p := range c.Providers {
		o.Providers = append(o.Providers, perdure.Provider{
			Name: p.Name, Kind: p.Kind, BaseURL: p.BaseURL, APIKey: p.APIKey.Reveal(), Models: p.Models, DefaultModel: p.DefaultModel,
		})
	}
	return o
}

// openData opens the server for a short command. What its log has to say is an error or of no interest.
func openData(ctx context.Context, s *settings) (*perdure.Server, error) {
	l, err := s.load()
	if err != nil {
		return nil, err
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return perdure.Open(ctx, options(l.Config, slog.New(slog.DiscardHandler)))
}

// inUse makes the refusal of a data directory tell what to do instead.
func inUse(err error, instead string) error {
	var used *perdure.InUseError
	if !errors.As(err, &used) {
		return err
	}
	who := "another Perdure server"
	if used.PID > 0 {
		who = fmt.Sprintf("another Perdure server (process %d)", used.PID)
	}
	return fmt.Errorf("%s has the data directory %s open.\n%s", who, used.Dir, instead)
}

// logger makes the log of a configuration.
func logger(w io.Writer, onTerminal bool, c config.Log) *slog.Logger {
	var level slog.Level
	// Validate has seen to it that the level is one.
	_ = level.UnmarshalText([]byte(c.Level))
	if c.Format == "json" || c.Format == "auto" && !onTerminal {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: "15:04:05.000", NoColor: !onTerminal || os.Getenv("NO_COLOR") != ""}))
}
