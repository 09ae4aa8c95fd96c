package sandbox

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"regexp"
	"time"
)

// The modes of Options.
const (
	ModeNative = "native"
	ModeNone   = "none"
)

// Options say how sandboxes are run on this host.
type Options struct {
	// Dir holds a directory for each session. It is made if missing and must belong to this server alone.
	Dir string
	// Mode is ModeNative, the default, or ModeNone: the tools then run as ordinary programs of the server's user, with
	// its files and network, and only receipts, interrupts and time limits work. ModeNone is for trusted agents only.
	Mode string
	// ServerGone is how long a supervisor stays while no server is connected and nothing runs; 15 minutes if 0.
	ServerGone time.Duration
	// UIDBase is the first of a range of a million user ids of the host that a server which runs as root uses, one for
	// each session; 200000 if 0. Nobody else may use them.
	UIDBase int
	// Reachable are address ranges that sandboxes may connect to although they are not public, such as a mirror in the
	// operator's network. The host itself may be among them: take care.
	Reachable []netip.Prefix
	// Logger is told what an operator should know; slog.Default() if nil.
	Logger *slog.Logger
}

const (
	defaultServerGone = 15 * time.Minute
	defaultUIDBase    = 200_000
	uidRange          = 1_000_000
)

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("sandbox: Options.Dir is empty: name a directory for the sandboxes' files")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("sandbox: Options.Dir: %w", err)
	}
	o.Dir = dir
	if o.Mode == "" {
		o.Mode = ModeNative
	}
	if o.Mode != ModeNative && o.Mode != ModeNone {
		return o, fmt.Errorf("sandbox: Options.Mode is %q: use %q or %q", o.Mode, ModeNative, ModeNone)
	}
	if o.ServerGone == 0 {
		o.ServerGone = defaultServerGone
	}
	if o.UIDBase == 0 {
		o.UIDBase = defaultUIDBase
	}
	if o.ServerGone < 0 || o.UIDBase < 1000 {
		return o, fmt.Errorf("sandbox: Options.ServerGone is %s and Options.UIDBase %d: they must be positive, and the latter no user of the system", o.ServerGone, o.UIDBase)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}

// VersionError says that the supervisor of a session is of another release, with which this one shares no protocol.
type VersionError struct {
	Session    string
	Supervisor [2]int // the oldest and the newest protocol that it speaks
	Server     [2]int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the supervisor of session %s speaks protocols %d to %d and this server %d to %d: it was started by another release of Perdure. "+
		"Run that release, or end the supervisor, which loses what runs in it",
		e.Session, e.Supervisor[0], e.Supervisor[1], e.Server[0], e.Server[1])
}

var validSession = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func checkSession(session string) error {
	if !validSession.MatchString(session) {
		return fmt.Errorf("sandbox: %q cannot be the id of a session", session)
	}
	return nil
}
