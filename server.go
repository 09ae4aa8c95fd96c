package perdure

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/bus"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/files"
	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/ledger"
	"github.com/perdure/perdure/internal/netguard"
	"github.com/perdure/perdure/internal/runner"
	"github.com/perdure/perdure/internal/sandbox"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/sqlite"
	"github.com/perdure/perdure/internal/tool/web"
)

// Server is a session server on a data directory.
type Server struct {
	store     *sqlite.Store
	sandboxes *sandbox.Local
	web       *web.Tools
	models    *models
	engine    *engine.Engine
	files     *files.Files
	api       *api.Server
	log       *slog.Logger
	dir       string
	workspace string

	closeOnce sync.Once
	closeErr  error
}

// Reexec must be called first in main, and in TestMain, of every program that opens a Server: the server starts its own
// program again for the processes of sandboxes. In such a process Reexec does not return.
func Reexec() { sandbox.Reexec() }

// Open opens the server on its data directory, and leaves nothing running if it fails. A directory that another process
// uses gives an *InUseError.
func Open(ctx context.Context, o Options) (server *Server, err error) {
	if o.Dir == "" {
		return nil, errors.New("perdure: Options.Dir is empty: name a data directory")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("perdure: make the data directory: %w", err)
	}
	s := &Server{log: o.Log, dir: o.Dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.store, err = openStore(ctx, o.Dir); err != nil {
		return nil, err
	}
	if s.workspace, err = s.firstWorkspace(ctx); err != nil {
		return nil, err
	}
	blobs, err := blob.Open(filepath.Join(o.Dir, "blobs"))
	if err != nil {
		return nil, err
	}
	if s.sandboxes, err = sandbox.Open(ctx, sandbox.Options{
		Dir: filepath.Join(o.Dir, "sandboxes"), Mode: o.Sandbox, Reachable: o.AllowNetworks, Logger: o.Log,
	}); err != nil {
		return nil, err
	}
	s.tellOfSandbox()
	if s.models, err = openModels(o); err != nil {
		return nil, err
	}
	guard, err := netguard.New(netguard.Options{Allow: o.AllowNetworks})
	if err != nil {
		return nil, err
	}
	tools := web.Options{Guard: guard, Version: o.Version}
	if o.SearchURL != "" {
		if tools.Searcher, err = web.NewSearXNG(o.SearchURL, &http.Client{}); err != nil {
			return nil, err
		}
	}
	s.web = web.New(tools)
	s.files = &files.Files{Store: s.store, Blobs: blobs, Sandboxes: s.sandboxes}
	s.assemble(o)
	return s, nil
}

// tellOfSandbox logs what this host cannot do for sandboxes, before anybody counts on it.
func (s *Server) tellOfSandbox() {
	report := s.sandboxes.Report()
	switch report.Isolation {
	case "unavailable":
		s.log.Error("this host cannot isolate agents: the tools that run in a sandbox are refused until that is fixed")
	case "none":
		s.log.Warn("tools run without isolation, because sandbox=none was chosen")
	}
	for _, p := range report.Problems {
		s.log.Warn("sandbox: "+p.What, "why", p.Why, "fix", p.Fix)
	}
}

// assemble makes the parts that have no resources of their own.
func (s *Server) assemble(o Options) {
	events := bus.New()
	logs := ledger.New(s.store, events)
	limits := session.DefaultLimits()
	if o.RequestsPerTurn > 0 {
		limits.Requests = o.RequestsPerTurn
	}
	drives := runner.New(runner.Options{
		Store: s.store, Ledger: logs, Bus: events, Models: s.models, Prices: s.models, Sandboxes: s.sandboxes, Web: s.web,
		Files: s.files, Log: o.Log, Limits: limits, Failpoint: failpoint,
		Retry: runner.Retry{Attempts: o.Retry.Attempts, Base: o.Retry.Base, Cap: o.Retry.Cap},
	})
	s.engine = engine.New(engine.Options{Store: s.store, Drive: drives.Drive, NewNode: func() string { return id.New(id.Node) }, Log: o.Log})
	s.api = api.New(api.Options{
		Store: s.store, Ledger: logs, Bus: events, Files: s.files, Models: s.models, Wake: s.engine.Wake, Erase: drives.Erase,
		StopSandbox: s.sandboxes.Stop, RuntimeRate: runtimeRate(o.RuntimeCentsPerHour), Keys: keys{s}, Log: o.Log,
		Health: s.store.Ping, Failpoint: failpoint,
	})
}

// runtimeRate is what an hour costs.
func runtimeRate(centsPerHour float64) session.Cost {
	switch {
	case centsPerHour < 0:
		return 0
	case centsPerHour == 0:
		return session.Cents(8)
	default:
		return session.Cost(centsPerHour * float64(session.Cents(1)))
	}
}

// InUseError says that another process has the data directory open.
type InUseError struct {
	Dir string
	PID int // 0 if it could not be found out
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("the data directory %s is in use by process %d; use that server, stop it, or choose another directory", e.Dir, e.PID)
}

func openStore(ctx context.Context, dir string) (*sqlite.Store, error) {
	s, err := sqlite.Open(ctx, dir, sqlite.Options{})
	var locked *sqlite.LockedError
	for until := time.Now().Add(orphanLimit); errors.As(err, &locked) && ended(locked.PID) && time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(orphanPause):
		}
		s, err = sqlite.Open(ctx, dir, sqlite.Options{})
	}
	if errors.As(err, &locked) {
		return nil, &InUseError{Dir: dir, PID: locked.PID}
	}
	if err != nil {
		return nil, fmt.Errorf("perdure: open the store: %w", err)
	}
	return s, nil
}

// A server that is killed while it starts the process of a sandbox leaves a child that has not begun to run another
// program, and holds the lock of the directory for that moment.
const (
	orphanLimit = 5 * time.Second
	orphanPause = 10 * time.Millisecond
)

// ended reports whether a process is known to be gone.
func ended(pid int) bool { return pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// firstWorkspace is the workspace of this server. The first start makes it.
func (s *Server) firstWorkspace(ctx context.Context) (string, error) {
	known, err := s.store.Workspaces(ctx)
	if err != nil {
		return "", err
	}
	if len(known) > 0 {
		return known[0], nil
	}
	workspace := id.New(id.Workspace)
	return workspace, s.store.CreateWorkspace(ctx, workspace, "default")
}

// Handler serves the API.
func (s *Server) Handler() http.Handler { return s.api }

// How long what is kept only for a time is kept, and how often that is looked after.
const (
	answersKept = 24 * time.Hour
	housekeep   = 10 * time.Minute
)

// Run drives the server's sessions until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { s.keepHouse(ctx) })
	err := s.engine.Run(ctx)
	group.Wait()
	return err
}

func (s *Server) keepHouse(ctx context.Context) {
	ticker := time.NewTicker(housekeep)
	defer ticker.Stop()
	for {
		if err := s.store.ForgetAnswers(ctx, time.Now().Add(-answersKept)); err != nil && ctx.Err() == nil {
			s.log.Warn("old answers could not be forgotten; it is tried again", "error", err)
		}
		if err := s.files.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("content that no file needs could not be removed; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// StopSandboxes ends every sandbox and all that runs in it; their files stay. It is for a server that will not be opened
// again soon: otherwise a sandbox ends by itself when nothing has used it for a while.
func (s *Server) StopSandboxes(ctx context.Context) error { return s.sandboxes.StopAll(ctx) }

// Close closes the server. Sandboxes go on: a server that is opened again finds them.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		if s.web != nil {
			s.web.Close()
		}
		if s.sandboxes != nil {
			s.closeErr = errors.Join(s.closeErr, s.sandboxes.Close())
		}
		if s.store != nil {
			s.closeErr = errors.Join(s.closeErr, s.store.Close())
		}
	})
	return s.closeErr
}

// Key is an API key without its secret.
type Key struct {
	ID      string
	Name    string
	Hint    string // how its secret begins
	Created time.Time
	Revoked time.Time // zero if it is not
}

func publicKey(k store.Key) Key {
	return Key{ID: k.ID, Name: k.Name, Hint: k.Hint, Created: k.Created, Revoked: k.Revoked}
}

type keys struct{ *Server }

// Create makes a key. Its secret is nowhere but in what is returned.
func (k keys) Create(ctx context.Context, workspace, name string) (string, store.Key, error) {
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return "", store.Key{}, fmt.Errorf("perdure: read random source: %w", err)
	}
	secret := "pdr_" + base64.RawURLEncoding.EncodeToString(random)
	key := store.Key{
		ID: id.New(id.APIKey), Workspace: workspace, Name: name, Hint: secret[:10], Hash: api.HashSecret(secret),
		Created: time.Now().UTC().Truncate(time.Microsecond),
	}
	return secret, key, k.store.PutKey(ctx, key)
}

// CreateKey makes an API key. The secret is shown only here.
func (s *Server) CreateKey(ctx context.Context, name string) (secret string, key Key, err error) {
	secret, k, err := keys{s}.Create(ctx, s.workspace, name)
	return secret, publicKey(k), err
}

// Keys returns all API keys, revoked ones too.
func (s *Server) Keys(ctx context.Context) ([]Key, error) {
	list, err := s.store.Keys(ctx)
	public := make([]Key, 0, len(list))
	for _, k := range list {
		public = append(public, publicKey(k))
	}
	return public, err
}

// RevokeKey makes a key useless from the next request on. An unknown key gives an error that wraps ErrNoKey.
func (s *Server) RevokeKey(ctx context.Context, key string) error {
	err := s.store.RevokeKey(ctx, key, time.Now())
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w: %s", ErrNoKey, key)
	}
	return err
}

// ErrNoKey says that there is no such API key.
var ErrNoKey = errors.New("there is no such API key")
