import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema';
import { accumulateManagedAgentsEvent, type AccumulatedEvent } from '@anthropic-ai/sdk/lib/sessions/accumulate';
import {
  Reader, askToolset, client, collect, converse, createSession, idle, ids, limit, log, message, only, refused, said, send, toolset, types,
  waiting, weatherTool,
} from './world.js';

test('a plain turn', limit, async () => {
  const session = await createSession('greet');
  const events = await converse(session.id, message('hello'));
  assert.deepEqual(types(events), [
    'session.status_running', 'session.thread_status_running', 'user.message', 'span.model_request_start', 'agent.message',
    'span.model_request_end', 'session.thread_status_idle', 'session.usage', 'session.status_idle',
  ]);
  assert.equal(said(events), 'You said: hello');
  assert.deepEqual(idle(events).stop_reason, { type: 'end_turn' });
  assert.equal(idle(events).stop_details, null);
  const [end] = only(events, 'span.model_request_end');
  assert.equal(end?.model_usage.input_tokens, 100);
  assert.deepEqual(events, await log(session.id), 'the stream shows what the log holds');
});

test('stream, list and dedupe', limit, async () => {
  const session = await createSession('chunks', toolset);
  await converse(session.id, message('go'));
  await send(session.id, message('go'));
  const reader = await Reader.open(session.id);
  const seen = new Map<string, string>();
  for await (const event of client.beta.sessions.events.list(session.id, { limit: 5 })) seen.set(event.id, event.type);
  const idles = () => [...seen.values()].filter((type) => type === 'session.status_idle').length;
  if (idles() < 2) {
    await reader.untilFound((event) => {
      if ('id' in event) seen.set(event.id, event.type);
      return idles() === 2;
    });
  }
  reader.close();
  assert.deepEqual([...seen.keys()], ids(await log(session.id)));
});

test('the log by every filter', limit, async () => {
  const session = await createSession('chunks', toolset);
  await converse(session.id, message('go'));
  const whole = await log(session.id);
  const list = async (params: object) => ids(await collect(client.beta.sessions.events.list(session.id, { limit: 3, ...params })));
  assert.deepEqual(await list({}), ids(whole));
  assert.deepEqual(await list({ order: 'desc' }), ids(whole).toReversed());
  assert.deepEqual(await list({ types: ['agent.tool_use', 'agent.tool_result'] }), ids(whole.filter(({ type }) => /^agent\.tool_/.test(type))));
  const at = whole[5]!.processed_at;
  assert.deepEqual(await list({ 'created_at[gt]': at }), ids(whole.slice(6)));
  assert.deepEqual(await list({ 'created_at[lte]': at }), ids(whole.slice(0, 6)));
});

test('previews add up to the message', limit, async () => {
  const session = await createSession('long');
  const reader = await Reader.open(session.id, { event_deltas: ['agent.message'] });
  await send(session.id, message('go'));
  let snapshot: AccumulatedEvent | undefined;
  let preview = '';
  let deltas = 0;
  const events = await reader.untilFound((event) => {
    if (event.type === 'event_start' || event.type === 'event_delta' || event.type === 'agent.message') {
      snapshot = accumulateManagedAgentsEvent(snapshot, event);
    }
    if (event.type === 'event_delta') {
      deltas++;
      preview = said([snapshot!]);
    }
    return event.type === 'session.status_idle';
  });
  reader.close();
  assert.ok(deltas > 1);
  assert.equal(preview, said(events));
  assert.deepEqual(snapshot, only(events, 'agent.message')[0]);
});

test('a custom tool, answered by hand', limit, async () => {
  const session = await createSession('weather', [weatherTool]);
  const events = await converse(session.id, message('weather, please'));
  const [call] = only(events, 'agent.custom_tool_use');
  assert.deepEqual(waiting(events), [call?.id]);
  assert.deepEqual(call?.input, { city: 'Paris' });
  await refused(send(session.id, message('hello?')), Anthropic.BadRequestError);
  const answer = await converse(session.id, {
    type: 'user.custom_tool_result', custom_tool_use_id: call!.id, content: [{ type: 'text', text: 'rain' }],
  });
  assert.equal(said(answer), 'The weather: rain');
  assert.deepEqual(idle(answer).stop_reason, { type: 'end_turn' });
});

test('custom tools, answered by the tool runner', limit, async () => {
  const session = await createSession('weather', [weatherTool]);
  const reader = await Reader.open(session.id);
  await send(session.id, message('both, please'));
  const cities: string[] = [];
  const tool = betaTool({
    name: 'get_weather',
    description: 'Says what the weather is like in a city.',
    inputSchema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    run: ({ city }) => {
      cities.push(city);
      return `fine in ${city}`;
    },
  });
  for await (const call of client.beta.sessions.events.toolRunner(session.id, { tools: [tool], maxIdleMs: 1 })) {
    assert.equal(call.posted, true);
    assert.equal(call.isError, false);
  }
  assert.deepEqual(cities, ['Paris', 'Oslo']);
  const events = await reader.untilFound((event) => event.type === 'session.status_idle' && event.stop_reason.type === 'end_turn');
  reader.close();
  assert.match(said(events), /fine in Oslo/);
});

test('approvals', limit, async () => {
  const session = await createSession('approve', askToolset);
  let events = await converse(session.id, message('one'));
  let [call] = only(events, 'agent.tool_use');
  assert.equal(call?.evaluated_permission, 'ask');
  assert.deepEqual(waiting(events), [call?.id]);
  events = await converse(session.id, { type: 'user.tool_confirmation', tool_use_id: call!.id, result: 'allow' });
  assert.match(said(events), /Result: approved run/);

  events = await converse(session.id, message('one'));
  [call] = only(events, 'agent.tool_use');
  events = await converse(session.id, { type: 'user.tool_confirmation', tool_use_id: call!.id, result: 'deny', deny_message: 'not today' });
  const [result] = only(events, 'agent.tool_result');
  assert.equal(result?.is_error, true);
  assert.match(JSON.stringify(result.content), /Permission to use bash has been rejected.*not today/);
});

test('an interrupt stops a stream of the model', limit, async () => {
  const session = await createSession('endless');
  const reader = await Reader.open(session.id, { event_deltas: ['agent.message'] });
  await send(session.id, message('go'));
  await reader.until('event_delta');
  await send(session.id, { type: 'user.interrupt' });
  const events = await reader.until('session.status_idle');
  reader.close();
  assert.equal(only(events, 'agent.message').length, 0);
  assert.equal(only(events, 'span.model_request_end').length, 1);
  assert.deepEqual(idle(events).stop_reason, { type: 'end_turn' });
});

test('an interrupt stops a running tool', limit, async () => {
  const session = await createSession('sleeper', toolset);
  const reader = await Reader.open(session.id);
  await send(session.id, message('go'));
  await reader.until('span.model_request_end');
  await send(session.id, { type: 'user.interrupt' });
  const events = await reader.until('session.status_idle');
  reader.close();
  assert.equal(only(events, 'agent.tool_result')[0]?.is_error, true);
  assert.equal(said(await converse(session.id, message('again'))), 'Awake.');
});

test('a refusal of the model', limit, async () => {
  const session = await createSession('refuse');
  const last = idle(await converse(session.id, message('go')));
  assert.deepEqual(last.stop_reason, { type: 'refusal' });
  assert.equal(last.stop_details?.category, 'cyber');
});
