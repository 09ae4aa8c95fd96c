import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { client, collect, createAgent, createEnvironment, limit, refused, weatherTool } from './world.js';

test('an agent with every kind of tool', limit, async () => {
  const agent = await client.beta.agents.create({
    name: 'Every tool',
    description: 'Has all kinds of tools.',
    system: 'Be brief.',
    model: { id: 'scripted/greet', effort: 'low', speed: 'standard' },
    metadata: { team: 'blue' },
    mcp_servers: [{ type: 'url', name: 'docs', url: 'https://example.com/mcp' }],
    tools: [
      {
        type: 'agent_toolset_20260401',
        configs: [
          { name: 'bash', permission_policy: { type: 'always_ask' } },
          { name: 'web_fetch', enabled: false },
        ],
      },
      { type: 'mcp_toolset', mcp_server_name: 'docs' },
      weatherTool,
    ],
  });
  assert.equal(agent.version, 1);
  assert.equal(agent.type, 'agent');
  assert.equal(agent.archived_at, null);
  assert.equal(agent.model.speed, 'standard');
  assert.deepEqual(agent.model.effort, { type: 'low' });
  assert.deepEqual(agent.execution_identity, { type: 'service_account' });
  const [own, mcp, custom] = agent.tools;
  assert.ok(own?.type === 'agent_toolset_20260401' && mcp?.type === 'mcp_toolset' && custom?.type === 'custom');
  assert.deepEqual(own.default_config, { enabled: true, permission_policy: { type: 'always_allow' } });
  assert.deepEqual(own.configs.map(({ name, enabled }) => [name, enabled]), [['bash', true], ['web_fetch', false]]);
  assert.deepEqual(own.configs[0]?.permission_policy, { type: 'always_ask' });
  assert.deepEqual(mcp.default_config.permission_policy, { type: 'always_ask' });
  assert.deepEqual(custom.input_schema.required, ['city']);
  assert.deepEqual(await client.beta.agents.retrieve(agent.id), agent);
});

test('updates make versions', limit, async () => {
  const { id } = await createAgent('greet', [weatherTool]);
  const second = await client.beta.agents.update(id, { version: 1, system: 'Be terse.', metadata: { a: '1', b: '2' } });
  assert.equal(second.version, 2);
  const error = await refused(client.beta.agents.update(id, { version: 1, name: 'late' }), Anthropic.ConflictError);
  assert.equal(error.headers?.get('x-should-retry'), 'false');
  assert.equal((await client.beta.agents.update(id, { system: 'Be terse.' })).version, 2);
  const third = await client.beta.agents.update(id, { system: null, tools: [], metadata: { a: null } });
  assert.equal(third.version, 3);
  assert.equal(third.system, null);
  assert.deepEqual(third.tools, []);
  assert.deepEqual(third.metadata, { b: '2' });
  assert.equal((await client.beta.agents.retrieve(id, { version: 1 })).tools.length, 1);
  await refused(client.beta.agents.retrieve(id, { version: 9 }), Anthropic.NotFoundError, 'Agent version not found.');
  const versions = await collect(client.beta.agents.versions.list(id, { limit: 2 }));
  assert.deepEqual(versions.map((agent) => agent.version), [3, 2, 1]);
  const archived = await client.beta.agents.archive(id);
  assert.ok(archived.archived_at);
  assert.equal((await client.beta.agents.archive(id)).archived_at, archived.archived_at);
  await refused(client.beta.agents.update(id, { name: 'x' }), Anthropic.BadRequestError, 'Cannot modify archived agent');
});

test('agents are listed page by page', limit, async () => {
  const first = await createAgent('greet');
  const made = [first];
  for (let i = 0; i < 4; i++) made.push(await createAgent('greet'));
  await client.beta.agents.archive(first.id);
  const since = { 'created_at[gte]': first.created_at, limit: 2 };
  const visible = await collect(client.beta.agents.list(since));
  for (const { id } of made.slice(1)) assert.ok(visible.some((agent) => agent.id === id));
  assert.ok(!visible.some((agent) => agent.id === first.id));
  const everything = await collect(client.beta.agents.list({ ...since, include_archived: true }));
  assert.ok(everything.some((agent) => agent.id === first.id));
  assert.equal(new Set(everything.map((agent) => agent.id)).size, everything.length);
});

test('environments', limit, async () => {
  const environment = await client.beta.environments.create({
    name: 'limited',
    description: 'Few hosts.',
    config: {
      type: 'cloud',
      networking: { type: 'limited', allowed_hosts: ['api.example.com'], allow_package_managers: true },
      packages: { pip: ['numpy'] },
    },
  });
  assert.deepEqual(environment.config, {
    type: 'cloud',
    networking: { type: 'limited', allowed_hosts: ['api.example.com'], allow_mcp_servers: false, allow_package_managers: true },
    packages: { type: 'packages', apt: [], cargo: [], gem: [], go: [], npm: [], pip: ['numpy'] },
  });
  assert.deepEqual(await client.beta.environments.retrieve(environment.id), environment);
  const own = await client.beta.environments.create({ name: 'own', config: { type: 'self_hosted' } });
  assert.equal(own.config.type, 'self_hosted');
  const renamed = await client.beta.environments.update(environment.id, { name: 'renamed', metadata: { a: '1' } });
  assert.equal(renamed.name, 'renamed');
  assert.deepEqual(renamed.config, environment.config);
  const change = await refused(
    client.beta.environments.update(environment.id, { config: { type: 'self_hosted' } }),
    Anthropic.BadRequestError,
  );
  assert.equal((change.error as any).error.details.error_code, 'invalid_config_type_change');
  const listed = await collect(client.beta.environments.list({ limit: 2 }));
  assert.ok(listed.some(({ id }) => id === own.id));
  assert.ok((await client.beta.environments.archive(environment.id)).archived_at);
  assert.ok(!(await collect(client.beta.environments.list())).some(({ id }) => id === environment.id));
  assert.deepEqual(await client.beta.environments.delete(environment.id), { id: environment.id, type: 'environment_deleted' });
  await refused(client.beta.environments.retrieve(environment.id), Anthropic.NotFoundError);
  await createEnvironment();
});

test('models', limit, async () => {
  const models = await collect(client.beta.models.list({ limit: 3 }));
  assert.ok(models.some(({ id }) => id === 'scripted/greet'));
  assert.equal((await client.beta.models.retrieve('scripted/greet')).type, 'model');
  await refused(client.beta.models.retrieve('no-such-model'), Anthropic.NotFoundError);
});
