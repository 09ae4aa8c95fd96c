package main

import (
	"context"
	"errors"
	"strings"

	"github.com/perdure/perdure/internal/client"
	"github.com/perdure/perdure/internal/terminal"
)

// The default agent and environment are found again by this entry of their metadata, so that they can be renamed and
// changed.
const (
	defaultKey   = "perdure"
	defaultValue = "default"
)

const defaultSystem = `You work in a Linux sandbox with a shell and files. The working directory is /workspace.
Do what you are asked, check that it is right, and say briefly what you did.
Files that the user should get go to /mnt/session/outputs.`

// always is a permission policy.
func always(policy string) map[string]any {
	return map[string]any{"permission_policy": map[string]any{"type": policy}}
}

// defaultAgent may do all in its sandbox, but asks before write: a new user sees an approval once, and can change the
// agent.
func defaultAgent(model string) map[string]any {
	write := always("always_ask")
	write["name"] = "write"
	return map[string]any{
		"name": "Default", "description": "Made by perdure run, for runs that name no agent.", "model": model, "system": defaultSystem,
		"metadata": map[string]string{defaultKey: defaultValue},
		"tools": []any{map[string]any{
			"type": "agent_toolset_20260401", "default_config": always("always_allow"), "configs": []any{write},
		}},
	}
}

func defaultEnvironment() map[string]any {
	return map[string]any{
		"name": "Default", "description": "Made by perdure run, for runs that name no agent.",
		"config":   map[string]any{"type": "cloud", "networking": map[string]any{"type": "unrestricted"}},
		"metadata": map[string]string{defaultKey: defaultValue},
	}
}

// remoteModel chooses a model on a server whose default is not known: its first real one.
func remoteModel(ctx context.Context, c *client.Client) (string, error) {
	ids, err := c.Models(ctx)
	if err != nil {
		return "", err
	}
	if len(ids) == 0 {
		return "", errors.New("the server has no models; name one with --model")
	}
	for _, id := range ids {
		if !scriptedModel(id) {
			return id, nil
		}
	}
	return demoModel, nil
}

const demoModel = "scripted/demo"

func scriptedModel(id string) bool { return strings.HasPrefix(id, "scripted/") }

// prepare returns the session to work in, and makes what it needs.
func (f *runFlags) prepare(ctx context.Context, c *client.Client, screen *terminal.Screen, defaultModel func(context.Context, *client.Client) (string, error)) (string, error) {
	if f.session != "" {
		return f.session, nil
	}
	environment, err := ensureEnvironment(ctx, c)
	if err != nil {
		return "", err
	}
	var agent *client.Agent
	model := f.model
	if f.agent != "" {
		agent, err = c.Agent(ctx, f.agent)
	} else {
		if model == "" {
			if model, err = defaultModel(ctx, c); err != nil {
				return "", err
			}
			if scriptedModel(model) {
				screen.Warn("No model is configured (ANTHROPIC_API_KEY, OPENAI_API_KEY or OPENAI_BASE_URL), so the scripted model " + model + " plays a small job and does not read your message.")
			}
		}
		agent, err = ensureAgent(ctx, c, model)
	}
	if err != nil {
		return "", err
	}
	body := map[string]any{"agent": agent.ID, "environment_id": environment.ID}
	if model != "" && model != agent.Model.ID {
		// The agent stays as it is: the model is this session's.
		body["agent"] = map[string]any{"type": "agent_with_overrides", "id": agent.ID, "model": model}
	}
	if f.title != "" {
		body["title"] = f.title
	}
	session, err := c.CreateSession(ctx, body)
	if err != nil {
		return "", err
	}
	screen.Note("session " + session.ID + " · model " + session.Agent.Model.ID)
	return session.ID, nil
}

func ensureAgent(ctx context.Context, c *client.Client, model string) (*client.Agent, error) {
	agent, err := c.FindAgent(ctx, defaultKey, defaultValue)
	if err != nil || agent != nil {
		return agent, err
	}
	return c.CreateAgent(ctx, defaultAgent(model))
}

func ensureEnvironment(ctx context.Context, c *client.Client) (*client.Environment, error) {
	environment, err := c.FindEnvironment(ctx, defaultKey, defaultValue)
	if err != nil || environment != nil {
		return environment, err
	}
	return c.CreateEnvironment(ctx, defaultEnvironment())
}
