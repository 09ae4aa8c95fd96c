package api

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/files"
	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

// mountsOf reads the files of a session.
func mountsOf(config *session.Config) ([]resource.FileResource, error) {
	list := make([]resource.FileResource, 0, len(config.Resources))
	for _, raw := range config.Resources {
		var f resource.FileResource
		if err := json.Unmarshal(raw, &f); err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return list, nil
}

func mountPaths(mounts []resource.FileResource) []string {
	paths := make([]string, 0, len(mounts))
	for _, m := range mounts {
		paths = append(paths, m.MountPath)
	}
	return paths
}

func addResource(c *call) (*reply, error) {
	if _, err := resource.DecodeFileMount(c.body, nil); err != nil {
		return nil, err
	}
	var added []resource.FileResource
	var copies []*files.Staged
	answer, _, err := c.change(func(step *session.Step) error {
		config := step.State.Config
		mounts, err := mountsOf(config)
		if err != nil {
			return err
		}
		mount, err := resource.DecodeFileMount(c.body, mountPaths(mounts))
		if err != nil {
			return err
		}
		if config.SelfHosted {
			return resource.CheckResources(&resource.Environment{ID: config.Environment, Config: resource.EnvironmentConfig{Type: resource.SelfHosted}})
		}
		if len(mounts) >= maxResources {
			return problem.Invalidf("Session %s has %d resources already; that is the most there can be.", config.ID, maxResources)
		}
		err = c.workspace().View(c.ctx, func(r store.Reader) error {
			added, copies, err = c.Files.Mount(r, config.ID, []resource.FileMount{mount})
			return err
		})
		if err != nil {
			return err
		}
		list, err := appendResources(config.Resources, added...)
		if err != nil {
			return err
		}
		return step.SetResources(list)
	}, func(step *session.Step) (any, error) {
		return added[0], step.Err()
	}, func(w store.Writer) error {
		return files.PutAll(w, copies)
	})
	return answer, err
}

// maxResources bounds the files of a session.
const maxResources = 500

func listResources(c *call) (*reply, error) {
	state, err := c.state()
	if err != nil {
		return nil, err
	}
	limit, err := c.limit(maxResources, 1000)
	if err != nil {
		return nil, err
	}
	at, err := c.cursor("asc")
	if err != nil {
		return nil, err
	}
	list := state.Config.Resources
	from := min(int(at.Seq), len(list))
	to := min(from+limit, len(list))
	var next *cursor
	if to < len(list) {
		next = &cursor{Seq: int64(to), Order: "asc"}
	}
	return ok(newPage(list[from:to], next))
}

// resource finds the resource of the path in the session.
func (c *call) resource(config *session.Config) (index int, found resource.FileResource, err error) {
	mounts, err := mountsOf(config)
	if err != nil {
		return 0, found, err
	}
	index = slices.IndexFunc(mounts, func(m resource.FileResource) bool { return m.ID == c.path("resource") })
	if index < 0 {
		return 0, found, problem.NotFoundf("Resource not found.")
	}
	return index, mounts[index], nil
}

func getResource(c *call) (*reply, error) {
	state, err := c.state()
	if err != nil {
		return nil, err
	}
	_, found, err := c.resource(state.Config)
	if err != nil {
		return nil, err
	}
	return ok(found)
}

func updateResource(c *call) (*reply, error) {
	state, err := c.state()
	if err != nil {
		return nil, err
	}
	if _, _, err := c.resource(state.Config); err != nil {
		return nil, err
	}
	return nil, problem.Invalidf("A file resource cannot be updated; delete it and add another.")
}

func deleteResource(c *call) (*reply, error) {
	var removed resource.FileResource
	answer, _, err := c.change(func(step *session.Step) error {
		i, found, err := c.resource(step.State.Config)
		if err != nil {
			return err
		}
		removed = found
		return step.SetResources(slices.Delete(slices.Clone(step.State.Config.Resources), i, i+1))
	}, func(step *session.Step) (any, error) {
		return resource.Deleted{ID: removed.ID, Type: "session_resource_deleted"}, step.Err()
	}, func(w store.Writer) error {
		err := w.Delete(store.Files, removed.FileID)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	})
	return answer, err
}
