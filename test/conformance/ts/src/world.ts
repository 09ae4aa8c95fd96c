// What the tests have in common: a client of the server under test, and ways to make and follow a session.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import type { BetaManagedAgentsStreamSessionEvents, EventSendParams, EventStreamParams } from '@anthropic-ai/sdk/resources/beta/sessions/events';
import type { AgentCreateParams } from '@anthropic-ai/sdk/resources/beta/agents/agents';
import type { Stream } from '@anthropic-ai/sdk/streaming';

function setting(name: string): string {
  const value = process.env[name];
  assert.ok(value, `${name} must be set; run these tests with: go test ./test/conformance`);
  return value;
}

export const baseURL = setting('PERDURE_URL');
export const apiKey = setting('PERDURE_API_KEY');
export const client = new Anthropic({ baseURL, apiKey });

/** Bounds each test, in milliseconds. */
export const limit = { timeout: 120_000 };

export type ClientEvent = EventSendParams['events'][number];
export type StreamEvent = BetaManagedAgentsStreamSessionEvents;
type Tools = NonNullable<AgentCreateParams['tools']>;

export const toolset: Tools = [{ type: 'agent_toolset_20260401' }];
export const askToolset: Tools = [
  { type: 'agent_toolset_20260401', default_config: { permission_policy: { type: 'always_ask' } } },
];
export const weatherTool: Tools[number] = {
  type: 'custom',
  name: 'get_weather',
  description: 'Says what the weather is like in a city.',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

export const createAgent = (script: string, tools?: Tools) =>
  client.beta.agents.create({ name: `ts ${script}`, model: `scripted/${script}`, ...(tools && { tools }) });

export const createEnvironment = () => client.beta.environments.create({ name: 'ts' });

export async function createSession(script: string, tools?: Tools) {
  const [agent, environment] = await Promise.all([createAgent(script, tools), createEnvironment()]);
  return client.beta.sessions.create({ agent: agent.id, environment_id: environment.id });
}

export const message = (text: string): ClientEvent => ({ type: 'user.message', content: [{ type: 'text', text }] });

export const send = (session: string, ...events: ClientEvent[]) => client.beta.sessions.events.send(session, { events });

/** A reader of one stream. Opening it is done when it resolves: nothing that is sent afterwards is missed. */
export class Reader {
  readonly #stream: Stream<StreamEvent>;
  readonly #events: AsyncIterator<StreamEvent>;

  private constructor(stream: Stream<StreamEvent>) {
    this.#stream = stream;
    this.#events = stream[Symbol.asyncIterator]();
  }

  static async open(session: string, params?: EventStreamParams): Promise<Reader> {
    return new Reader(await client.beta.sessions.events.stream(session, params));
  }

  /** Reads up to the first event that is found, and returns all events with it. */
  async untilFound(found: (event: StreamEvent) => boolean): Promise<StreamEvent[]> {
    const events: StreamEvent[] = [];
    for (;;) {
      const next = await this.#events.next();
      assert.ok(!next.done, `the stream ended after ${types(events)}`);
      events.push(next.value);
      if (found(next.value)) return events;
    }
  }

  until(type: StreamEvent['type']): Promise<StreamEvent[]> {
    return this.untilFound((event) => event.type === type);
  }

  /** Whether the server has ended the stream. */
  async ended(): Promise<boolean> {
    return (await this.#events.next()).done === true;
  }

  close(): void {
    this.#stream.controller.abort();
  }
}

/** Sends events and reads to the end of the turn. */
export async function converse(session: string, ...events: ClientEvent[]): Promise<StreamEvent[]> {
  const reader = await Reader.open(session);
  try {
    await send(session, ...events);
    return await reader.until('session.status_idle');
  } finally {
    reader.close();
  }
}

export async function collect<T>(pages: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of pages) items.push(item);
  return items;
}

export const log = (session: string) => collect(client.beta.sessions.events.list(session, { limit: 1000 }));

export const types = (events: { type: string }[]) => events.map((event) => event.type);

export const ids = (events: object[]) => events.map((event) => ('id' in event ? event.id : undefined));

/** Picks the events of one type. */
export function only<Type extends StreamEvent['type']>(events: StreamEvent[], type: Type) {
  return events.filter((event): event is Extract<StreamEvent, { type: Type }> => event.type === type);
}

export const said = (events: StreamEvent[]) =>
  only(events, 'agent.message')
    .flatMap((event) => event.content)
    .map((block) => (block.type === 'text' ? block.text : ''))
    .join('');

export function idle(events: StreamEvent[]) {
  const last = events.at(-1);
  assert.equal(last?.type, 'session.status_idle');
  return last as Extract<StreamEvent, { type: 'session.status_idle' }>;
}

/** The calls that a session waits for. */
export function waiting(events: StreamEvent[]): string[] {
  const { stop_reason } = idle(events);
  assert.equal(stop_reason.type, 'requires_action');
  return (stop_reason as Extract<typeof stop_reason, { type: 'requires_action' }>).event_ids;
}

/** Checks that a call is refused, and how the client shows that. */
export async function refused(
  call: Promise<unknown>,
  Class: new (...args: any[]) => InstanceType<typeof Anthropic.APIError>,
  words: string | RegExp = '',
): Promise<InstanceType<typeof Anthropic.APIError>> {
  const error = await call.then(
    () => assert.fail('the call was not refused'),
    (error: unknown) => error,
  );
  assert.ok(error instanceof Class, `${error} is not a ${Class.name}`);
  assert.match(error.requestID ?? '', /^req_/);
  assert.ok(error.message.match(words), `${error.message} does not match ${words}`);
  return error;
}
