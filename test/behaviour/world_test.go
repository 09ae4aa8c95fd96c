//go:build linux

package behaviour

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/test/harness/raw"
)

// limit bounds every wait for something that must happen.
const limit = 60 * time.Second

type object = map[string]any

// world is a server with its model.
type world struct {
	raw.Client
	dir     string
	model   *strictModel
	log     *journal
	options perdure.Options
	server  *perdure.Server
	web     *httptest.Server
	stop    context.CancelFunc
	done    chan error
}

// prices make the models whose names begin with "priced-" cost what the reference bill says.
const prices = `models: [{id: priced-*, prices: {input: 2, cache_read: 0.20, output: 10}}]`

// newWorld opens a server. Change may alter its options.
func newWorld(dir string, change func(*perdure.Options)) (*world, error) {
	w := &world{dir: filepath.Join(dir, "data"), log: &journal{}, model: startModel()}
	table := filepath.Join(dir, "prices.yaml")
	if err := os.WriteFile(table, []byte(prices), 0o600); err != nil {
		return nil, err
	}
	w.options = perdure.Options{
		Dir:             w.dir,
		Providers:       []perdure.Provider{{Name: "strict", Kind: "anthropic", BaseURL: w.model.web.URL, APIKey: providerKey, Models: []string{"*"}}},
		PricesFile:      table,
		AllowNetworks:   []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Retry:           perdure.Retry{Attempts: 3, Base: 10 * time.Millisecond, Cap: 20 * time.Millisecond},
		RequestsPerTurn: 8,
		Log:             slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&w.options)
	}
	if err := w.open(); err != nil {
		w.model.close()
		return nil, err
	}
	var err error
	w.Key, _, err = w.server.CreateKey(context.Background(), "tests")
	return w, err
}

// ownWorld is a server for one test.
func ownWorld(t *testing.T, change func(*perdure.Options)) *world {
	t.Helper()
	w, err := newWorld(t.TempDir(), change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.end(), findSecret(w)); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(w.log.String())
		}
	})
	return w
}

func (w *world) open() (err error) {
	if w.server, err = perdure.Open(context.Background(), w.options); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop, w.done = cancel, make(chan error, 1)
	go func() { w.done <- w.server.Run(ctx) }()
	w.web = httptest.NewServer(w.server.Handler())
	w.URL = w.web.URL
	return nil
}

// shut stops the server as a deploy does, in the middle of whatever it does.
func (w *world) shut() error {
	w.web.CloseClientConnections()
	w.web.Close()
	w.stop()
	return errors.Join(<-w.done, w.server.Close())
}

// restart stops the server and opens another on the same data.
func (w *world) restart(t *testing.T) {
	t.Helper()
	if err := errors.Join(w.shut(), w.open()); err != nil {
		t.Fatal(err)
	}
}

func (w *world) end() error {
	err := w.shut()
	w.model.close()
	return err
}

// journal is a log that can be read.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}
