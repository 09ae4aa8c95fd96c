package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/perdure/perdure/internal/sandbox/cgroup"
	"github.com/perdure/perdure/internal/sandbox/sessiondir"
)

// Local runs sandboxes on this host. It holds nothing of them in memory.
type Local struct {
	options  Options
	uids     *uids // nil if the server is not root or does not isolate
	cgroups  cgroup.Layout
	children *children
	starts   singleflight.Group
	report   Report
}

var _ Sandboxes = (*Local)(nil)

// trash holds what is being removed, so that a removal that was cut short is finished by the next Open.
const trash = ".trash"

// Open finds out what this host can do, by starting a sandbox and trying to get out of it, and removes what dead
// supervisors left. Living ones are not touched. A host that cannot isolate is no error: the Report says why, and Run
// fails with an *UnavailableError.
func Open(ctx context.Context, options Options) (*Local, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("sandbox: make the directory: %w", err)
	}
	// The agents' users must not get in by way of the host.
	if err := os.Chmod(options.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("sandbox: protect the directory: %w", err)
	}
	l := &Local{options: options}
	if options.Mode == ModeNative {
		l.cgroups = cgroup.Detect(options.Dir)
		if os.Getuid() == 0 {
			l.uids = &uids{dir: options.Dir, base: options.UIDBase}
		}
	}
	if err := l.clean(ctx); err != nil {
		return nil, fmt.Errorf("sandbox: clean up after dead supervisors: %w", err)
	}
	l.children = newChildren()
	l.report = Report{Driver: options.Mode, Isolation: "none", Enforced: l.enforced()}
	if options.Mode == ModeNative {
		l.report.Isolation, l.report.Problems = l.probe(ctx)
	}
	return l, nil
}

// Close releases what Open took in this process. Sandboxes go on.
func (l *Local) Close() error {
	l.children.close()
	return nil
}

// Report says what this host can enforce.
func (l *Local) Report() Report { return l.report }

func (l *Local) enforced() map[string]string {
	if l.options.Mode == ModeNone {
		return map[string]string{
			"memory": "no", "processes": "no", "cpu": "no", "open_files": "no", "file_size": "no", "tmp": "no", "disk": "no", "network": "no",
			"call_time": "supervisor",
		}
	}
	by := l.cgroups.Enforced()
	or := func(controller, otherwise string) string {
		if how, ok := by[controller]; ok {
			return how
		}
		return otherwise
	}
	return map[string]string{
		"memory": or("memory", "rlimit"), "processes": or("pids", "rlimit"), "cpu": or("cpu", "no"),
		"open_files": "rlimit", "file_size": "rlimit", "tmp": "tmpfs", "disk": "no", "network": "namespace",
		"call_time": "supervisor",
	}
}

func (l *Local) dir(session string) sessiondir.Dir {
	return sessiondir.Dir(filepath.Join(l.options.Dir, session))
}

// clean removes the processes, control groups and sockets of supervisors that were killed.
func (l *Local) clean(ctx context.Context) error {
	if err := l.emptyTrash(); err != nil {
		return err
	}
	suspects := l.cgroups.Sessions()
	entries, err := os.ReadDir(l.options.Dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		dir := l.dir(entry.Name())
		if entry.IsDir() && (dir.InUse() || strings.HasPrefix(entry.Name(), probePrefix)) {
			suspects = append(suspects, entry.Name())
		}
	}
	slices.Sort(suspects)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, session := range slices.Compact(suspects) {
		dir := l.dir(session)
		if _, err := os.Stat(string(dir)); errors.Is(err, os.ErrNotExist) {
			if err := cgroup.Remove(ctx, l.cgroups.For(session)); err != nil {
				return err
			}
			continue
		}
		lock, err := dir.Lock()
		if errors.Is(err, sessiondir.ErrLocked) {
			continue
		}
		if err != nil {
			return err
		}
		err = l.sweep(ctx, session)
		if err == nil && strings.HasPrefix(session, probePrefix) { // of a server that was killed while it tried out the host
			err = l.discard(session)
		}
		if err := errors.Join(err, lock.Close()); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what a supervisor leaves when it is killed. The caller holds the session's lock.
func (l *Local) sweep(ctx context.Context, session string) error {
	dir := l.dir(session)
	if err := dir.EndGuest(ctx); err != nil {
		return err
	}
	return errors.Join(cgroup.Remove(ctx, l.cgroups.For(session)), dir.RemoveSocket())
}

func (l *Local) emptyTrash() error {
	bin := filepath.Join(l.options.Dir, trash)
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(bin)
	for _, entry := range entries {
		err = errors.Join(err, removeAll(filepath.Join(bin, entry.Name())))
	}
	return err
}

// discard removes a session's directory. The caller holds its lock. It is renamed first: from then on the session does not
// exist, however long the removal takes and whatever cuts it short.
func (l *Local) discard(session string) error {
	doomed := filepath.Join(l.options.Dir, trash, fmt.Sprintf("%s-%d", session, time.Now().UnixNano()))
	if err := os.Rename(string(l.dir(session)), doomed); err != nil {
		return err
	}
	return removeAll(doomed)
}

// removeAll removes a tree that an agent made and that nobody uses any more.
func removeAll(path string) error {
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	// Directories that the agent closed to their owner, who is the server's own user where it is not root.
	err := filepath.WalkDir(path, func(path string, entry os.DirEntry, err error) error {
		if entry != nil && entry.IsDir() {
			if err := os.Chmod(path, 0o700); err != nil {
				return err
			}
		}
		return nil // what could not be read before can be now, or RemoveAll says why not
	})
	return errors.Join(err, os.RemoveAll(path))
}
