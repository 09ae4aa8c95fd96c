package perdure

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Check is one thing that a server needs, and whether it has it.
type Check struct {
	Name   string
	OK     bool
	Detail string // what was found
	Fix    string // what to do if it is not OK, or could be better; "" if nothing
}

// Checks looks at all that the server needs: its data directory, its disk, its sandboxes, its model providers.
func (s *Server) Checks(ctx context.Context) []Check {
	checks := []Check{s.checkDir(), s.checkStore(ctx)}
	checks = append(checks, s.checkSandbox()...)
	return append(checks, s.checkModels(ctx)...)
}

func (s *Server) checkDir() Check {
	c := Check{Name: "data directory", Detail: s.dir}
	info, err := os.Stat(s.dir)
	switch {
	case err != nil:
		c.Detail, c.Fix = err.Error(), "make the directory readable and writable for this user"
	case info.Mode().Perm()&0o077 != 0:
		c.Detail = fmt.Sprintf("%s can be read by other users (mode %04o)", s.dir, info.Mode().Perm())
		c.Fix = "chmod 700 " + s.dir
	default:
		c.OK = true
	}
	return c
}

// slowCommit is a commit that takes so long that turns are slow because of it.
const slowCommit = 20 * time.Millisecond

// checkStore writes to the disk as every step of a session does, and times it.
func (s *Server) checkStore(ctx context.Context) Check {
	c := Check{Name: "durable writes"}
	var times []time.Duration
	for range 9 {
		began := time.Now()
		if err := s.store.Ping(ctx); err != nil {
			c.Detail, c.Fix = err.Error(), "see that the disk is writable and has space left"
			return c
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	median := times[len(times)/2]
	c.OK = true
	c.Detail = fmt.Sprintf("a commit takes %s (median of %d)", median.Round(10*time.Microsecond), len(times))
	if median > slowCommit {
		c.Fix = "put the data directory on a faster disk: every step of a session waits for a commit"
	}
	return c
}

func (s *Server) checkSandbox() []Check {
	report := s.sandboxes.Report()
	c := Check{Name: "sandbox", OK: report.Isolation == "full", Detail: fmt.Sprintf("%s, isolation %s", report.Driver, report.Isolation)}
	if report.Isolation == "none" {
		c.Fix = "tools run without isolation because sandbox=none was chosen; remove it unless every agent is trusted"
	}
	var limits []string
	for what, how := range report.Enforced {
		limits = append(limits, what+" by "+how)
	}
	slices.Sort(limits)
	if len(limits) > 0 {
		c.Detail += "; limits: " + strings.Join(limits, ", ")
	}
	checks := []Check{c}
	for _, p := range report.Problems {
		checks = append(checks, Check{Name: "sandbox: " + p.What, OK: report.Isolation == "full", Detail: p.Why, Fix: p.Fix})
	}
	return checks
}

func (s *Server) checkModels(ctx context.Context) []Check {
	statuses := s.models.Check(ctx)
	if len(statuses) == 0 {
		return []Check{{
			Name: "models", OK: true, Detail: "only scripted models: no provider is configured",
			Fix: "set ANTHROPIC_API_KEY, or OPENAI_BASE_URL for a local server, to use a real model",
		}}
	}
	var checks []Check
	for _, status := range statuses {
		c := Check{Name: "models: " + status.Provider, OK: status.Err == nil, Detail: "reachable, and takes the key"}
		if status.Err != nil {
			c.Detail, c.Fix = status.Err.Error(), "check the provider's base URL, its key and the network"
		}
		checks = append(checks, c)
	}
	return checks
}
