package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/sandbox"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/tool"
	"github.com/perdure/perdure/internal/tool/web"
)

// agent is what the session's agent is to a drive.
type agent struct {
	resource.AgentSnapshot
	tools  *tool.Set
	system string
	of     *session.Config
}

// loadAgent reads the agent of the session as it is at the head of the log.
func (d *drive) loadAgent() (*agent, error) {
	config := d.state.Config
	if d.agent != nil && d.agent.of == config {
		return d.agent, nil
	}
	a := &agent{of: config}
	if err := json.Unmarshal(config.Agent, &a.AgentSnapshot); err != nil {
		return nil, fmt.Errorf("runner: read the agent of session %s: %w", config.ID, err)
	}
	a.tools = tool.NewSet(&a.AgentConfig, config.SelfHosted)
	a.system = systemPrompt(&a.AgentSnapshot, config)
	d.agent = a
	return a, nil
}

func (a *agent) effort() string { return a.Model.Effort.Type }

// systemPrompt is the agent's own, and what it must know of the place where it works. It is the same on every turn unless
// the session itself is changed.
func systemPrompt(a *resource.AgentSnapshot, config *session.Config) string {
	var parts []string
	if a.System != nil && strings.TrimSpace(*a.System) != "" {
		parts = append(parts, *a.System)
	}
	if place := placePrompt(a, config); place != "" {
		parts = append(parts, place)
	}
	return strings.Join(parts, "\n\n")
}

func placePrompt(a *resource.AgentSnapshot, config *session.Config) string {
	files := false
	for _, t := range a.EnabledBuiltins() {
		files = files || t.Name != resource.WebFetch && t.Name != resource.WebSearch
	}
	if !files || config.SelfHosted {
		return ""
	}
	var b strings.Builder
	b.WriteString("# Your workspace\n" +
		"Your tools work in a sandbox of this session. Its working directory is /workspace, and its files stay from turn to turn. " +
		"Put what the user is to receive in /mnt/session/outputs; each file there is delivered.")
	if mounts := mountPaths(config); len(mounts) > 0 {
		b.WriteString(" The user gave you these files, which you can read:\n- " + strings.Join(mounts, "\n- "))
	}
	return b.String()
}

func mountPaths(config *session.Config) []string {
	var paths []string
	for _, m := range mounts(config) {
		paths = append(paths, m.MountPath)
	}
	return paths
}

func mounts(config *session.Config) []resource.FileResource {
	var files []resource.FileResource
	for _, raw := range config.Resources {
		var f resource.FileResource
		if json.Unmarshal(raw, &f) == nil && f.Type == "file" {
			files = append(files, f)
		}
	}
	return files
}

// environment reads the environment of the session as it is at present: environments have no versions. One that was
// deleted meanwhile lets nothing out.
func (d *drive) environment(ctx context.Context) (*resource.Environment, error) {
	var e resource.Environment
	err := d.Store.In(d.lease.Workspace).View(ctx, func(r store.Reader) error {
		document, err := r.Document(store.Environments, d.state.Config.Environment)
		if err != nil {
			return err
		}
		return json.Unmarshal(document.Body, &e)
	})
	if errors.Is(err, store.ErrNotFound) {
		limited := &resource.Networking{Type: resource.NetworkLimited, Limited: &resource.Limited{}}
		return &resource.Environment{Config: resource.EnvironmentConfig{Type: resource.Cloud, Networking: limited}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("runner: read environment %s: %w", d.state.Config.Environment, err)
	}
	return &e, nil
}

// spec describes the sandbox of the session.
func (d *drive) spec(ctx context.Context, e *resource.Environment) sandbox.Spec {
	network := e.Config.Network()
	spec := sandbox.Spec{
		Session: d.lease.Session,
		Network: sandbox.Network{Mode: network.Mode, Allow: network.Hosts},
		Limits:  sandbox.DefaultLimits(),
	}
	for _, m := range mounts(d.state.Config) {
		path, err := d.Files.Path(ctx, d.lease.Workspace, m.FileID)
		if err != nil {
			// A file that was deleted is not there any more; the agent sees that as it sees any missing file.
			d.log.Warn("a file of the session is gone", "file", m.FileID, "error", err)
			continue
		}
		spec.Uploads = append(spec.Uploads, sandbox.Upload{Path: m.MountPath, Source: path})
	}
	return spec
}

func webSettings(e *resource.Environment, a *agent, name string) web.Settings {
	network := e.Config.WebNetwork()
	settings := web.Settings{Limited: network.Mode == resource.NetworkLimited, AllowedHosts: network.Hosts}
	if name == resource.WebSearch {
		domains, search := a.WebSearch()
		settings.Domains = []web.Domains{{Allowed: domains.Allowed, Blocked: domains.Blocked}}
		if l := search.UserLocation; l != nil {
			settings.Location = &web.Location{City: text(l.City), Region: text(l.Region), Country: text(l.Country), Timezone: text(l.Timezone)}
		}
		return settings
	}
	domains, fetch := a.WebFetch()
	settings.Domains = []web.Domains{{Allowed: domains.Allowed, Blocked: domains.Blocked}}
	if fetch.MaxContentTokens != nil {
		settings.MaxContentTokens = *fetch.MaxContentTokens
	}
	return settings
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
