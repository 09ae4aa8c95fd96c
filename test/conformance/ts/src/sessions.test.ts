import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic, { toFile } from '@anthropic-ai/sdk';
import {
  Reader, client, collect, converse, createAgent, createEnvironment, createSession, ids, limit, log, message, refused, said, send, toolset,
  types, weatherTool,
} from './world.js';

test('a session with everything', limit, async () => {
  const [agent, environment] = await Promise.all([createAgent('greet', toolset), createEnvironment()]);
  const file = await client.beta.files.upload({ file: await toFile(Buffer.from('a,b\n'), 'data.csv') });
  const session = await client.beta.sessions.create({
    agent: { type: 'agent', id: agent.id, version: 1 },
    environment_id: environment.id,
    title: 'A title',
    metadata: { order: '1234' },
    budget: { type: 'limit', max_list_cost: { amount: '2500', currency: 'USD' } },
    resources: [{ type: 'file', file_id: file.id, mount_path: '/data.csv' }],
  });
  assert.equal(session.status, 'idle');
  assert.equal(session.title, 'A title');
  assert.deepEqual(session.metadata, { order: '1234' });
  assert.deepEqual(session.budget?.max_list_cost, { amount: '2500', currency: 'USD' });
  assert.equal(session.agent.version, 1);
  const [resource] = session.resources;
  assert.ok(resource?.type === 'file');
  assert.equal(resource.mount_path, '/mnt/session/uploads/data.csv');
  assert.notEqual(resource.file_id, file.id);
  assert.deepEqual(session.usage.list_cost, { amount: '0', currency: 'USD' });
  // The clock of a session runs, so its statistics are another at each read.
  assert.deepEqual({ ...(await client.beta.sessions.retrieve(session.id)), stats: session.stats }, session);
});

test('an agent with overrides', limit, async () => {
  const [agent, environment] = await Promise.all([createAgent('greet', toolset), createEnvironment()]);
  const session = await client.beta.sessions.create({
    agent: { type: 'agent_with_overrides', id: agent.id, model: 'scripted/weather', system: 'Other.', tools: [weatherTool] },
    environment_id: environment.id,
  });
  assert.equal(session.agent.id, agent.id);
  assert.equal(session.agent.model.id, 'scripted/weather');
  assert.equal(session.agent.system, 'Other.');
  assert.deepEqual(types(session.agent.tools), ['custom']);
});

test('initial events start the session', limit, async () => {
  const [agent, environment] = await Promise.all([createAgent('greet'), createEnvironment()]);
  const session = await client.beta.sessions.create({
    agent: agent.id,
    environment_id: environment.id,
    initial_events: [{ type: 'user.message', content: [{ type: 'text', text: 'first words' }] }],
  });
  assert.equal(session.status, 'running');
  const reader = await Reader.open(session.id);
  if ((await client.beta.sessions.retrieve(session.id)).status !== 'idle') await reader.until('session.status_idle');
  reader.close();
  const events = await log(session.id);
  assert.equal(events.filter((event) => event.type === 'user.message').length, 1);
  assert.ok(JSON.stringify(events).includes('You said: first words'));
});

test('updates are told on the stream', limit, async () => {
  const session = await createSession('greet', toolset);
  const reader = await Reader.open(session.id);
  const updated = await client.beta.sessions.update(session.id, { title: 'Renamed', metadata: { a: '1' } });
  assert.equal(updated.title, 'Renamed');
  const event = (await reader.until('session.updated')).at(-1);
  assert.ok(event?.type === 'session.updated');
  assert.equal(event.title, 'Renamed');
  assert.deepEqual(event.metadata, { a: '1' });
  assert.ok(!('agent' in event));
  reader.close();
});

test('sessions are listed by every filter, forwards and backwards', limit, async () => {
  const [agent, environment] = await Promise.all([createAgent('greet'), createEnvironment()]);
  const made = [];
  for (let i = 0; i < 5; i++) made.push(await client.beta.sessions.create({ agent: agent.id, environment_id: environment.id }));
  const all = ids(made);
  const list = async (params: object) => ids(await collect(client.beta.sessions.list({ agent_id: agent.id, order: 'asc', limit: 2, ...params })));
  assert.deepEqual(await list({}), all);
  assert.deepEqual(await list({ order: 'desc' }), all.toReversed());
  const middle = made[2]!.created_at;
  assert.deepEqual(await list({ 'created_at[gt]': middle }), all.slice(3));
  assert.deepEqual(await list({ 'created_at[gte]': middle }), all.slice(2));
  assert.deepEqual(await list({ 'created_at[lt]': middle }), all.slice(0, 2));
  assert.deepEqual(await list({ 'created_at[lte]': middle }), all.slice(0, 3));
  assert.deepEqual(await list({ statuses: ['idle', 'running'] }), all);
  assert.deepEqual(await list({ statuses: ['terminated'] }), []);
  assert.deepEqual(await list({ agent_version: 1 }), all);
  assert.deepEqual(await list({ agent_version: 2 }), []);

  const first = await client.beta.sessions.list({ agent_id: agent.id, limit: 2 });
  assert.equal(first.prev_page, null);
  assert.ok(first.hasNextPage());
  const second = await first.getNextPage();
  const back = await client.beta.sessions.list({ agent_id: agent.id, limit: 2, page: second.prev_page! });
  assert.deepEqual(ids(back.data), ids(first.data));

  const archived = await client.beta.sessions.archive(made[0]!.id);
  assert.equal(archived.status, 'terminated');
  assert.deepEqual(await list({}), all.slice(1));
  assert.deepEqual(await list({ include_archived: true }), all);
});

test('a deleted session ends its streams', limit, async () => {
  const session = await createSession('greet');
  await converse(session.id, message('hello'));
  const reader = await Reader.open(session.id);
  assert.deepEqual(await client.beta.sessions.delete(session.id), { id: session.id, type: 'session_deleted' });
  await reader.until('session.deleted');
  assert.ok(await reader.ended());
  await refused(client.beta.sessions.retrieve(session.id), Anthropic.NotFoundError);
});

test('a running session is neither archived nor deleted', limit, async () => {
  const session = await createSession('endless');
  const reader = await Reader.open(session.id);
  await send(session.id, message('go'));
  await reader.until('span.model_request_start');
  await refused(client.beta.sessions.archive(session.id), Anthropic.BadRequestError, /cannot be archived while its status is/);
  await refused(client.beta.sessions.delete(session.id), Anthropic.BadRequestError, /Cannot delete session while it is running/);
  await send(session.id, { type: 'user.interrupt' });
  await reader.until('session.status_idle');
  reader.close();
  assert.equal(said(await converse(session.id, message('again'))), 'Back again.');
  await client.beta.sessions.archive(session.id);
  await refused(send(session.id, message('late')), Anthropic.APIError);
});

test('the primary thread', limit, async () => {
  const session = await createSession('greet');
  const threads = await collect(client.beta.sessions.threads.list(session.id));
  assert.equal(threads.length, 1);
  const thread = threads[0]!;
  assert.equal(thread.parent_thread_id, null);
  assert.equal(thread.session_id, session.id);
  const stream = await client.beta.sessions.threads.events.stream(thread.id, { session_id: session.id });
  await send(session.id, message('hello'));
  const seen = [];
  for await (const event of stream) {
    seen.push(event);
    if (event.type === 'session.thread_status_idle') break;
  }
  assert.ok(types(seen).includes('agent.message'));
  const listed = ids(await collect(client.beta.sessions.threads.events.list(thread.id, { session_id: session.id, limit: 3 })));
  assert.deepEqual(listed.slice(0, seen.length), ids(seen));
  const again = await client.beta.sessions.threads.retrieve(thread.id, { session_id: session.id });
  assert.equal(again.usage?.input_tokens, 100);
});

test('files of a session', limit, async () => {
  const session = await createSession('greet', toolset);
  const file = await client.beta.files.upload({ file: await toFile(Buffer.from('content'), 'a.txt', { type: 'text/plain' }) });
  const added = await client.beta.sessions.resources.add(session.id, { type: 'file', file_id: file.id, mount_path: '/in/a.txt' });
  assert.equal(added.mount_path, '/mnt/session/uploads/in/a.txt');
  assert.deepEqual(ids(await collect(client.beta.sessions.resources.list(session.id))), [added.id]);
  const got = await client.beta.sessions.resources.retrieve(added.id, { session_id: session.id });
  assert.ok(got.type === 'file' && got.file_id === added.file_id);
  assert.deepEqual(await client.beta.sessions.resources.delete(added.id, { session_id: session.id }), {
    id: added.id,
    type: 'session_resource_deleted',
  });
  await refused(client.beta.sessions.resources.retrieve(added.id, { session_id: session.id }), Anthropic.NotFoundError);
});

test('files', limit, async () => {
  const file = await client.beta.files.upload({ file: await toFile(Buffer.from('content'), 'a.txt', { type: 'text/plain' }) });
  assert.equal(file.filename, 'a.txt');
  assert.equal(file.size_bytes, 7);
  assert.equal(file.downloadable, false);
  assert.deepEqual(await client.beta.files.retrieveMetadata(file.id), file);
  await refused(client.beta.files.download(file.id), Anthropic.BadRequestError, /is not downloadable/);
  assert.deepEqual(await client.beta.files.delete(file.id), { id: file.id, type: 'file_deleted' });
  await refused(client.beta.files.retrieveMetadata(file.id), Anthropic.NotFoundError);
});

test('deliverables of a session', limit, async () => {
  const session = await createSession('deliver', toolset);
  await converse(session.id, message('go'));
  const files = await collect(client.beta.files.list({ scope_id: session.id, limit: 1, betas: ['managed-agents-2026-04-01'] }));
  assert.deepEqual(files.map(({ filename }) => filename).toSorted(), ['note.txt', 'table.csv']);
  const table = files.find(({ filename }) => filename === 'table.csv')!;
  assert.equal(table.downloadable, true);
  assert.equal(await (await client.beta.files.download(table.id)).text(), 'a,b\n1,2\n');
});
