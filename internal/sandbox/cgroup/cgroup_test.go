//go:build linux

package cgroup_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/prerequisite"
	"github.com/perdure/perdure/internal/sandbox/cgroup"
	"github.com/perdure/perdure/internal/sandbox/wire"
)

func TestGroups(t *testing.T) {
	t.Parallel()
	layout := cgroup.Detect(t.TempDir())
	if len(layout.Enforced()) == 0 {
		prerequisite.Missing(t, "no control group can be made here")
	}
	groups := layout.For("sesn_a")
	limits := wire.Limits{CPUs: 0.5, MemoryBytes: 64 << 20, Processes: 10}
	for range 2 { // groups that are there already are fine
		if err := cgroup.Make(groups, limits); err != nil {
			t.Fatal(err)
		}
	}
	if got := layout.Sessions(); !slices.Equal(got, []string{"sesn_a"}) {
		t.Errorf("sessions %v", got)
	}
	if kills := cgroup.MemoryKills(groups); kills != 0 {
		t.Errorf("%d processes were killed before there were any", kills)
	}
	inside := exec.Command("/bin/sh", "-c", "read go; sleep 1000 & sleep 1000")
	stdin, err := inside.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := inside.Start(); err != nil {
		t.Fatal(err)
	}
	if err := cgroup.Join(groups, inside.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := stdin.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	membership, err := os.ReadFile("/proc/" + strconv.Itoa(inside.Process.Pid) + "/cgroup")
	if err != nil || !strings.Contains(string(membership), "sesn_a") {
		t.Errorf("it is in %s (%v)", membership, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- inside.Wait() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := cgroup.Remove(ctx, groups); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("what was in the groups was not killed")
	}
	for _, g := range groups {
		if _, err := os.Stat(g.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there", g.Dir)
		}
	}
	if err := cgroup.Remove(ctx, groups); err != nil {
		t.Errorf("removed again: %v", err)
	}
}
