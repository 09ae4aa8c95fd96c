package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/client"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/terminal"
)

// ownKey is the name of the key that an embedded server makes for its command.
const ownKey = "perdure run"

// embedded is a server that runs for as long as the command, on a loopback port that nobody else has the key to.
type embedded struct {
	server *perdure.Server
	client *client.Client
	key    string
	stop   context.CancelFunc
	served chan error
}

// embed starts a server. If it fails later, fail is told.
func (f *runFlags) embed(ctx context.Context, screen *terminal.Screen, fail context.CancelCauseFunc) (_ *embedded, err error) {
	l, err := f.load()
	if err != nil {
		return nil, err
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	for _, w := range l.Warnings {
		screen.Warn(w)
	}
	l.Log.Format = "text"
	if !f.verbose {
		l.Log.Level = "warn"
	}
	server, err := perdure.Open(ctx, options(l.Config, logger(screen, false, l.Log)))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, server.Close())
		}
	}()
	e := &embedded{server: server, served: make(chan error, 1)}
	secret, err := e.makeKey(ctx)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	e.client, err = client.New(client.Options{BaseURL: "http://" + listener.Addr().String(), Key: model.Secret(secret)})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stop = stop
	go func() {
		err := serveOn(serving, server, listener)
		if err != nil {
			fail(err)
		}
		e.served <- err
	}()
	return e, nil
}

// makeKey makes a key for this command, and ends those of commands that were killed: nobody else can be using them, since
// one process at a time has the data directory.
func (e *embedded) makeKey(ctx context.Context) (string, error) {
	keys, err := e.server.Keys(ctx)
	if err != nil {
		return "", err
	}
	for _, k := range keys {
		if k.Name == ownKey && k.Revoked.IsZero() {
			if err := e.server.RevokeKey(ctx, k.ID); err != nil {
				return "", err
			}
		}
	}
	secret, k, err := e.server.CreateKey(ctx, ownKey)
	e.key = k.ID
	return secret, err
}

// close stops the server. Sessions that are at work go on when the directory is opened again.
func (e *embedded) close() error {
	e.stop()
	err := <-e.served
	return errors.Join(err, e.server.RevokeKey(context.Background(), e.key), e.server.Close())
}

// defaultModel is the model of agents that name none.
func (e *embedded) defaultModel(ctx context.Context, _ *client.Client) (string, error) {
	return e.server.DefaultModel(ctx), nil
}
