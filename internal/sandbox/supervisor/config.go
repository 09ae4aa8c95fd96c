//go:build linux

package supervisor

import (
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox/egress"
	"github.com/perdure/perdure/internal/sandbox/guest"
	"github.com/perdure/perdure/internal/sandbox/isolation"
	"github.com/perdure/perdure/internal/sandbox/wire"
)

// Where the agent finds things.
const (
	workspaceInside = "/workspace"
	outputsInside   = "/mnt/session/outputs"
	resultsInside   = "/mnt/session/tool_results"
	uploadsInside   = "/mnt/session/uploads"
	memoryInside    = "/mnt/memory"
)

func (s *supervisor) guestConfig(spec wire.Spec) wire.GuestConfig {
	environment := map[string]string{
		"LANG": "C.UTF-8", "SHELL": "/bin/bash", "TERM": "dumb", "USER": isolation.User, "LOGNAME": isolation.User,
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": isolation.Home,
	}
	if !s.config.Isolate {
		environment["PATH"], environment["HOME"] = os.Getenv("PATH"), s.dir.Home()
		return wire.GuestConfig{
			Workdir: s.dir.Workspace(), Results: s.dir.Results(), ResultsHere: s.dir.Results(), Scratch: s.dir.Scratch(),
			AllowedRoots:  []string{s.dir.Outputs(), s.dir.Results(), s.dir.Uploads(), s.dir.Home()},
			ReadOnlyRoots: []string{s.dir.Uploads()},
			Environment:   environment,
		}
	}
	if spec.Network.Mode != egress.None {
		maps.Copy(environment, egress.Variables(isolation.ProxyAddress))
	}
	var processBytes int64
	if !s.bounded("memory") {
		processBytes = spec.Limits.MemoryBytes
	}
	return wire.GuestConfig{
		Workdir: workspaceInside, Results: resultsInside, ResultsHere: resultsInside, Scratch: isolation.Scratch,
		AllowedRoots:  []string{"/mnt/session", memoryInside, isolation.Home, "/tmp"},
		ReadOnlyRoots: []string{uploadsInside},
		Environment:   environment,
		ProcessBytes:  processBytes,
		Processes:     spec.Limits.Processes,
		Isolated:      true,
	}
}

// bounded says whether a control group bounds the whole sandbox's use.
func (s *supervisor) bounded(controller string) bool {
	return slices.ContainsFunc(s.config.Cgroups, func(g wire.CgroupConfig) bool { return slices.Contains(g.Controllers, controller) })
}

func (s *supervisor) isolationConfig(spec wire.Spec, config wire.GuestConfig) isolation.Config {
	limit := spec.Limits
	rlimits := []isolation.Rlimit{
		{Resource: unix.RLIMIT_CORE, Value: 0},
		{Resource: unix.RLIMIT_NOFILE, Value: uint64(limit.OpenFiles)},
		{Resource: unix.RLIMIT_FSIZE, Value: uint64(limit.FileBytes)},
	}
	return isolation.Config{
		Root: s.dir.Root(),
		UID:  s.config.UID,
		Binds: []isolation.Bind{
			{Source: s.dir.Workspace(), Target: workspaceInside, Writable: true},
			{Source: s.dir.Outputs(), Target: outputsInside, Writable: true},
			{Source: s.dir.Results(), Target: resultsInside, Writable: true},
			{Source: s.dir.Uploads(), Target: uploadsInside},
			{Source: s.dir.Home(), Target: isolation.Home, Writable: true},
		},
		TmpBytes:    limit.TmpBytes,
		Rlimits:     rlimits,
		Egress:      spec.Network.Mode != egress.None,
		Arguments:   []string{guest.Role},
		Environment: variables(config.Environment),
		Workdir:     config.Workdir,
	}
}

func variables(environment map[string]string) []string {
	list := make([]string, 0, len(environment))
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		list = append(list, name+"="+environment[name])
	}
	return list
}
