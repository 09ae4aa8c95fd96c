//go:build linux

// Package cgroup bounds what all processes of a sandbox use together, with whichever version of control groups this host
// lets the server use. What it cannot bound it says, so that nobody takes a limit for granted.
package cgroup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox/wire"
)

// controllers are what sandboxes are bounded by.
var controllers = []string{"memory", "pids", "cpu"}

// serverLeaf is where the server moves itself in a delegated tree of version 2, because a group that gives controllers
// to its children may hold no processes.
const serverLeaf = "perdure.server"

// Layout is where this server may make groups.
type Layout struct {
	prefix string
	bases  []wire.CgroupConfig // Dir is the parent directory
}

// Detect finds out by trying. Owner is a path that tells the groups of one data directory from another's. In a delegated
// tree of version 2 the present process is moved into a leaf.
func Detect(owner string) Layout {
	sum := sha256.Sum256([]byte(owner))
	l := Layout{prefix: "perdure-" + hex.EncodeToString(sum[:6]) + "-"}
	mounts, err := readMounts()
	if err != nil {
		return l
	}
	own, err := ownGroups()
	if err != nil {
		return l
	}
	if base, ok := detectVersion2(mounts, own); ok {
		l.bases = append(l.bases, base)
		return l
	}
	for _, controller := range controllers {
		i := slices.IndexFunc(mounts, func(m mount) bool { return m.version == 1 && slices.Contains(m.options, controller) })
		if i < 0 {
			continue
		}
		base := wire.CgroupConfig{Dir: mounts[i].locate(own[controller]), Version: 1, Controllers: []string{controller}}
		if l.canMake(base) {
			l.bases = append(l.bases, base)
		}
	}
	return l
}

func (l Layout) canMake(base wire.CgroupConfig) bool {
	trial := filepath.Join(base.Dir, l.prefix+"trial-"+strconv.Itoa(os.Getpid()))
	return os.Mkdir(trial, 0o755) == nil && os.Remove(trial) == nil
}

func detectVersion2(mounts []mount, own map[string]string) (wire.CgroupConfig, bool) {
	i := slices.IndexFunc(mounts, func(m mount) bool { return m.version == 2 })
	if i < 0 {
		return wire.CgroupConfig{}, false
	}
	base := wire.CgroupConfig{Dir: mounts[i].locate(own[""]), Version: 2}
	if filepath.Base(base.Dir) == serverLeaf {
		base.Dir = filepath.Dir(base.Dir)
	}
	offered := words(filepath.Join(base.Dir, "cgroup.controllers"))
	for _, controller := range controllers {
		if slices.Contains(offered, controller) {
			base.Controllers = append(base.Controllers, controller)
		}
	}
	if len(base.Controllers) == 0 {
		return base, false
	}
	enable := "+" + strings.Join(base.Controllers, " +")
	subtree := filepath.Join(base.Dir, "cgroup.subtree_control")
	if os.WriteFile(subtree, []byte(enable), 0) == nil {
		return base, true
	}
	leaf := filepath.Join(base.Dir, serverLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return base, false
	}
	if os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0) != nil {
		return base, false
	}
	return base, os.WriteFile(subtree, []byte(enable), 0) == nil
}

// Enforced says by what each of memory, pids and cpu is bounded, for those that are.
func (l Layout) Enforced() map[string]string {
	by := map[string]string{}
	for _, base := range l.bases {
		for _, controller := range base.Controllers {
			by[controller] = "cgroup" + strconv.Itoa(base.Version)
		}
	}
	return by
}

// For is the groups of one session. They need not exist.
func (l Layout) For(session string) []wire.CgroupConfig {
	groups := slices.Clone(l.bases)
	for i := range groups {
		groups[i].Dir = filepath.Join(groups[i].Dir, l.prefix+session)
	}
	return groups
}

// Sessions are those that have groups, alive or not.
func (l Layout) Sessions() []string {
	var sessions []string
	for _, base := range l.bases {
		entries, err := os.ReadDir(base.Dir)
		if err != nil {
			continue // the hierarchy is gone, and its groups with it
		}
		for _, entry := range entries {
			if session, ok := strings.CutPrefix(entry.Name(), l.prefix); ok {
				sessions = append(sessions, session)
			}
		}
	}
	slices.Sort(sessions)
	return slices.Compact(sessions)
}

// Make makes the groups and sets their limits.
func Make(groups []wire.CgroupConfig, limits wire.Limits) error {
	for _, g := range groups {
		if err := os.Mkdir(g.Dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		for _, controller := range g.Controllers {
			for _, s := range settings(g.Version, controller, limits) {
				err := os.WriteFile(filepath.Join(g.Dir, s.file), []byte(s.value), 0)
				if err != nil && (!s.optional || !errors.Is(err, os.ErrNotExist)) {
					return fmt.Errorf("set the limit of %s: %w", controller, err)
				}
			}
		}
	}
	return nil
}

type setting struct {
	file, value string
	optional    bool
}

func settings(version int, controller string, limits wire.Limits) []setting {
	const period = 100_000 // microseconds
	memory := strconv.FormatInt(limits.MemoryBytes, 10)
	// The agent's processes are limited one by one too, to less, so that the guest can always start a thread: this is
	// for those that found a way around that.
	const guestTasks = 64
	tasks := strconv.Itoa(limits.Processes + guestTasks)
	quota := strconv.Itoa(max(1000, int(limits.CPUs*period)))
	switch {
	case version == 1 && controller == "memory":
		return []setting{{"memory.limit_in_bytes", memory, false}, {"memory.memsw.limit_in_bytes", memory, true}}
	case version == 2 && controller == "memory":
		return []setting{{"memory.max", memory, false}, {"memory.swap.max", "0", true}}
	case controller == "pids":
		return []setting{{"pids.max", tasks, false}}
	case version == 1 && controller == "cpu":
		return []setting{{"cpu.cfs_period_us", strconv.Itoa(period), false}, {"cpu.cfs_quota_us", quota, false}}
	default:
		return []setting{{"cpu.max", quota + " " + strconv.Itoa(period), false}}
	}
}

// Join puts a process into the groups.
func Join(groups []wire.CgroupConfig, pid int) error {
	for _, g := range groups {
		if err := os.WriteFile(filepath.Join(g.Dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return err
		}
	}
	return nil
}

// MemoryKills is how many processes were killed because the groups' memory was used up.
func MemoryKills(groups []wire.CgroupConfig) int {
	for _, g := range groups {
		file := "memory.oom_control"
		if g.Version == 2 {
			file = "memory.events"
		}
		fields := words(filepath.Join(g.Dir, file))
		if i := slices.Index(fields, "oom_kill"); i >= 0 && i+1 < len(fields) {
			if n, err := strconv.Atoi(fields[i+1]); err == nil {
				return n
			}
		}
	}
	return 0
}

// Remove kills whatever is in the groups and removes them. It waits until they are gone or ctx ends.
func Remove(ctx context.Context, groups []wire.CgroupConfig) error {
	for _, g := range groups {
		if err := remove(ctx, g.Dir); err != nil {
			return fmt.Errorf("remove the control group %s: %w", g.Dir, err)
		}
	}
	return nil
}

func remove(ctx context.Context, dir string) error {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		for _, word := range words(filepath.Join(dir, "cgroup.procs")) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL) // it may just have ended
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

func words(file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}
