package main

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/client"
)

// localKeys are the keys of a data directory.
type localKeys struct{ server *perdure.Server }

func localKey(k perdure.Key) client.Key {
	shown := client.Key{ID: k.ID, Name: k.Name, Hint: k.Hint, Created: k.Created.UTC().Format(time.RFC3339)}
	if !k.Revoked.IsZero() {
		revoked := k.Revoked.UTC().Format(time.RFC3339)
		shown.Revoked = &revoked
	}
	return shown
}

func (l localKeys) create(ctx context.Context, name string) (client.Key, error) {
	secret, k, err := l.server.CreateKey(ctx, name)
	shown := localKey(k)
	shown.Secret = secret
	return shown, err
}

func (l localKeys) list(ctx context.Context) ([]client.Key, error) {
	keys, err := l.server.Keys(ctx)
	var shown []client.Key
	for _, k := range keys {
		shown = append(shown, localKey(k))
	}
	return shown, err
}

func (l localKeys) revoke(ctx context.Context, id string) error { return l.server.RevokeKey(ctx, id) }

func (l localKeys) Close() error { return l.server.Close() }

// remoteKeys are the keys of a server's workspace.
type remoteKeys struct{ c *client.Client }

func (r remoteKeys) create(ctx context.Context, name string) (client.Key, error) {
	k, err := r.c.CreateKey(ctx, name)
	if err != nil {
		return client.Key{}, err
	}
	return *k, nil
}

func (r remoteKeys) list(ctx context.Context) ([]client.Key, error) { return r.c.Keys(ctx) }

func (r remoteKeys) revoke(ctx context.Context, id string) error { return r.c.RevokeKey(ctx, id) }

func (r remoteKeys) Close() error { r.c.Close(); return nil }
