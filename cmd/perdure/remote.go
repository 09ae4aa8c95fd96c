package main

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/client"
	"github.com/perdure/perdure/internal/config"
	"github.com/perdure/perdure/internal/model"
)

// remote are the flags of commands that can use a server elsewhere.
type remote struct{ url, key string }

func (r *remote) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.url, "url", "", "use the server at this URL (or PERDURE_URL)")
	cmd.Flags().StringVar(&r.key, "api-key", "", "API key of that server (better PERDURE_API_KEY or PERDURE_API_KEY_FILE, which other users cannot see)")
}

// client returns nil if no server elsewhere is meant. A flag counts more than the environment, so --data means a
// directory also where PERDURE_URL is set.
func (r *remote) client(s *settings, onTrouble func(error, time.Duration)) (*client.Client, error) {
	environ := config.Environ(os.Environ())
	if r.url != "" && s.data != "" {
		return nil, errors.New("--url and --data cannot both be given: a server elsewhere has its own data directory")
	}
	if r.url == "" && s.data == "" {
		r.url = environ["PERDURE_URL"]
	}
	if r.url == "" {
		if r.key != "" {
			return nil, errors.New("--api-key needs the --url of the server that it belongs to")
		}
		return nil, nil
	}
	key := model.Secret(r.key)
	if key == "" {
		var err error
		if key, err = config.Secret(environ, "PERDURE_API_KEY"); err != nil {
			return nil, err
		}
	}
	return client.New(client.Options{BaseURL: r.url, Key: key, Patience: 2 * time.Minute, OnTrouble: onTrouble})
}
