import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { Reader, apiKey, baseURL, client, collect, converse, createAgent, createSession, ids, limit, log, message, only, refused } from './world.js';

test('errors are the classes of the client', limit, async () => {
  await refused(client.beta.agents.retrieve('agent_011CZkYpogX7uDKUyvBTophP'), Anthropic.NotFoundError, 'Agent not found.');
  await refused(client.beta.agents.retrieve('nonsense'), Anthropic.BadRequestError, 'Invalid agent ID.');
  await refused(client.beta.agents.list({ page: 'nonsense' }), Anthropic.BadRequestError, 'invalid page cursor');
  await refused(client.beta.sessions.retrieve('sesn_011CZkZAtmR3yMPDzynEDxu7'), Anthropic.NotFoundError);
  const stranger = new Anthropic({ baseURL, apiKey: 'sk-ant-wrong' });
  const error = await refused(stranger.beta.agents.list(), Anthropic.AuthenticationError, 'Authentication failed');
  assert.equal(error.type, 'authentication_error');
});

test('a conflict is not repeated by the client', limit, async () => {
  const { id } = await createAgent('greet');
  let requests = 0;
  const counting = client.withOptions({ fetch: (...args) => (requests++, fetch(...args)) });
  await refused(counting.beta.agents.update(id, { version: 5 }), Anthropic.ConflictError);
  assert.equal(requests, 1);
});

test('request ids', limit, async () => {
  const { data, request_id } = await client.beta.agents.list().withResponse();
  assert.ok(Array.isArray(data.data));
  assert.match(request_id ?? '', /^req_/);
});

test('a lost answer is repeated, and counts once with a key', limit, async () => {
  const session = await createSession('greet');
  const reader = await Reader.open(session.id);
  let requests = 0;
  const lossy = client.withOptions({
    fetch: async (...args) => {
      const response = await fetch(...args);
      if (++requests > 1) return response;
      await response.arrayBuffer(); // the request has had its effect
      throw new TypeError('the connection broke');
    },
  });
  const sent = await lossy.beta.sessions.events.send(
    session.id, { events: [message('once')] }, { headers: { 'Idempotency-Key': session.id } },
  );
  assert.equal(requests, 2);
  const events = await reader.until('session.status_idle');
  reader.close();
  assert.deepEqual(ids(only(events, 'user.message')), ids(sent.data!));
  assert.equal(only(events, 'span.model_request_start').length, 1);
});

const old = { 'x-api-key': apiKey, 'anthropic-version': '2023-06-01', 'anthropic-beta': 'managed-agents-2026-04-01' };

test('the headers and queries of older clients', limit, async () => {
  const { id } = await createSession('greet');
  for (const path of ['agents', 'environments', 'sessions', 'files', `sessions/${id}`, `sessions/${id}/events`, `sessions/${id}/threads`]) {
    const response = await fetch(`${baseURL}/v1/${path}?beta=true`, { headers: old });
    assert.equal(response.status, 200, path);
    assert.match(response.headers.get('content-type') ?? '', /^application\/json/);
    assert.match(response.headers.get('request-id') ?? '', /^req_/);
  }
  const create = await fetch(`${baseURL}/v1/agents?beta=true`, {
    method: 'POST', headers: { ...old, 'content-type': 'application/json' }, body: JSON.stringify({ name: 'old', model: 'scripted/greet' }),
  });
  assert.equal(create.status, 200);
  const events = await converse(id, message('hello'));
  const repeated = await fetch(`${baseURL}/v1/sessions/${id}/events?beta=true&types%5B%5D=agent.message&types[]=user.message`, { headers: old });
  assert.equal(((await repeated.json()) as { data: unknown[] }).data.length, 2);
  assert.deepEqual(ids(events), ids(await log(id)));
});

test('an unknown path', limit, async () => {
  const response = await fetch(`${baseURL}/v1/nothing`);
  assert.equal(response.status, 404);
  const body = (await response.json()) as { type: string; error: { type: string }; request_id: string };
  assert.equal(body.type, 'error');
  assert.equal(body.error.type, 'not_found_error');
  assert.equal(body.request_id, response.headers.get('request-id'));
  assert.ok(await collect(client.beta.agents.list({ limit: 100 })));
});
