"""Drives a Perdure server with the official Python client, unmodified.

PERDURE_URL and PERDURE_API_KEY name the server; `go test ./test/conformance` starts one and sets them.
"""

import asyncio
import os
import unittest
from collections.abc import Iterator
from contextlib import contextmanager

import anthropic
from anthropic import Anthropic, AsyncAnthropic, beta_async_tool

BASE_URL = os.environ["PERDURE_URL"]
API_KEY = os.environ["PERDURE_API_KEY"]
PLAIN_TURN = [
    "session.status_running",
    "session.thread_status_running",
    "user.message",
    "span.model_request_start",
    "agent.message",
    "span.model_request_end",
    "session.thread_status_idle",
    "session.usage",
    "session.status_idle",
]
TOOLSET = {"type": "agent_toolset_20260401"}
WEATHER = {
    "type": "custom",
    "name": "get_weather",
    "description": "Says what the weather is like in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def message(text: str) -> dict:
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


def said(events: list) -> str:
    return "".join(block.text for event in events if event.type == "agent.message" for block in event.content)


class Conformance(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Anthropic(base_url=BASE_URL, api_key=API_KEY, timeout=120)
        self.addCleanup(self.client.close)

    def agent(self, script: str, tools: list | None = None):
        return self.client.beta.agents.create(name=f"python {script}", model=f"scripted/{script}", tools=tools or [])

    def environment(self):
        return self.client.beta.environments.create(name="python")

    def session(self, script: str, tools: list | None = None):
        return self.client.beta.sessions.create(agent=self.agent(script, tools).id, environment_id=self.environment().id)

    def send(self, session, *events: dict):
        return self.client.beta.sessions.events.send(session.id, events=list(events))

    @contextmanager
    def stream(self, session, **params) -> Iterator:
        with self.client.beta.sessions.events.stream(session.id, **params) as stream:
            yield stream

    def until(self, stream, kind: str) -> list:
        events = []
        for event in stream:
            events.append(event)
            if event.type == kind:
                return events
        return self.fail(f"the stream ended after {[event.type for event in events]}")

    def converse(self, session, *events: dict) -> list:
        with self.stream(session) as stream:
            self.send(session, *events)
            return self.until(stream, "session.status_idle")

    def log(self, session) -> list:
        return list(self.client.beta.sessions.events.list(session.id, limit=7))

    def test_agents(self) -> None:
        agents = self.client.beta.agents
        agent = self.agent("greet", [TOOLSET, WEATHER])
        self.assertEqual(agent.version, 1)
        self.assertEqual([tool.type for tool in agent.tools], ["agent_toolset_20260401", "custom"])
        self.assertEqual(agents.retrieve(agent.id), agent)
        second = agents.update(agent.id, version=1, system="Be terse.")
        self.assertEqual((second.version, second.system), (2, "Be terse."))
        with self.assertRaises(anthropic.ConflictError):
            agents.update(agent.id, version=1, name="late")
        self.assertEqual(agents.update(agent.id, system="Be terse.").version, 2)
        self.assertEqual([a.version for a in agents.versions.list(agent.id, limit=1)], [2, 1])
        self.assertEqual(agents.retrieve(agent.id, version=1).system, None)
        self.assertIn(agent.id, [a.id for a in agents.list(limit=50)])
        self.assertIsNotNone(agents.archive(agent.id).archived_at)
        self.assertNotIn(agent.id, [a.id for a in agents.list(limit=50)])

    def test_environments(self) -> None:
        environments = self.client.beta.environments
        environment = environments.create(
            name="limited",
            config={"type": "cloud", "networking": {"type": "limited", "allowed_hosts": ["api.example.com"]}},
        )
        self.assertEqual(environment.config.networking.allowed_hosts, ["api.example.com"])
        self.assertEqual(environment.config.packages.pip, [])
        self.assertEqual(environments.retrieve(environment.id), environment)
        self.assertEqual(environments.update(environment.id, name="renamed").name, "renamed")
        self.assertIn(environment.id, [e.id for e in environments.list()])
        self.assertIsNotNone(environments.archive(environment.id).archived_at)
        self.assertEqual(environments.delete(environment.id).type, "environment_deleted")
        with self.assertRaises(anthropic.NotFoundError):
            environments.retrieve(environment.id)

    def test_sessions(self) -> None:
        sessions = self.client.beta.sessions
        agent, environment = self.agent("greet"), self.environment()
        made = [
            sessions.create(
                agent={"type": "agent", "id": agent.id, "version": 1},
                environment_id=environment.id,
                title=f"Number {i}",
                metadata={"number": str(i)},
            )
            for i in range(3)
        ]
        self.assertEqual(made[0].status, "idle")
        self.assertEqual(sessions.retrieve(made[0].id).agent, made[0].agent)
        self.assertEqual([s.id for s in sessions.list(agent_id=agent.id, limit=1, order="asc")], [s.id for s in made])
        later = sessions.list(agent_id=agent.id, created_at_gt=made[0].created_at)
        self.assertEqual([s.id for s in later], [made[2].id, made[1].id])
        self.assertEqual(sessions.update(made[0].id, title="Other").title, "Other")
        self.assertEqual(sessions.archive(made[0].id).status, "terminated")
        self.assertEqual(sessions.delete(made[1].id).type, "session_deleted")
        self.assertEqual([s.id for s in sessions.list(agent_id=agent.id)], [made[2].id])

    def test_plain_turn(self) -> None:
        session = self.session("greet")
        events = self.converse(session, message("hello"))
        self.assertEqual([event.type for event in events], PLAIN_TURN)
        self.assertEqual(said(events), "You said: hello")
        self.assertEqual(events[-1].stop_reason.type, "end_turn")
        self.assertIsNone(events[-1].stop_details)
        self.assertEqual([e.id for e in self.log(session)], [e.id for e in events])
        self.assertEqual(self.client.beta.sessions.retrieve(session.id).usage.input_tokens, 100)

    def test_stream_list_and_dedupe(self) -> None:
        session = self.session("chunks", [TOOLSET])
        self.converse(session, message("go"))
        self.send(session, message("go"))
        with self.stream(session) as stream:
            seen = {event.id: event.type for event in self.log(session)}
            while list(seen.values()).count("session.status_idle") < 2:
                event = next(stream)
                seen[event.id] = event.type
        self.assertEqual(list(seen), [event.id for event in self.log(session)])

    def test_previews(self) -> None:
        session = self.session("long")
        with self.stream(session, event_deltas=["agent.message"]) as stream:
            self.send(session, message("go"))
            events = self.until(stream, "session.status_idle")
        starts = [event for event in events if event.type == "event_start"]
        final = [event for event in events if event.type == "agent.message"]
        text = "".join(event.delta.content.text for event in events if event.type == "event_delta")
        self.assertEqual([start.event.id for start in starts], [event.id for event in final])
        self.assertEqual(text, said(events))

    def test_custom_tool(self) -> None:
        session = self.session("weather", [WEATHER])
        events = self.converse(session, message("weather, please"))
        call = next(event for event in events if event.type == "agent.custom_tool_use")
        self.assertEqual(call.input, {"city": "Paris"})
        self.assertEqual(events[-1].stop_reason.event_ids, [call.id])
        with self.assertRaises(anthropic.BadRequestError):
            self.send(session, message("hello?"))
        content = [{"type": "text", "text": "rain"}]
        events = self.converse(session, {"type": "user.custom_tool_result", "custom_tool_use_id": call.id, "content": content})
        self.assertEqual(said(events), "The weather: rain")

    def test_tool_runner(self) -> None:
        cities = []

        @beta_async_tool
        async def get_weather(city: str) -> str:
            """Says what the weather is like in a city."""
            cities.append(city)
            return f"fine in {city}"

        async def run(session) -> list:
            async with AsyncAnthropic(base_url=BASE_URL, api_key=API_KEY) as client:
                runner = client.beta.sessions.events.tool_runner(session.id, tools=[get_weather], max_idle=0.01)
                return [call async for call in runner]

        session = self.session("weather", [WEATHER])
        with self.stream(session) as stream:
            self.send(session, message("both, please"))
            calls = asyncio.run(run(session))
            events = self.until(stream, "session.status_idle")
            while events[-1].stop_reason.type != "end_turn":
                events += self.until(stream, "session.status_idle")
        self.assertEqual([(call.posted, call.is_error) for call in calls], [(True, False)] * 2)
        self.assertEqual(cities, ["Paris", "Oslo"])
        self.assertIn("fine in Oslo", said(events))

    def test_files(self) -> None:
        files = self.client.beta.files
        upload = files.upload(file=("a.txt", b"forty-two", "text/plain"))
        self.assertEqual((upload.filename, upload.size_bytes, upload.downloadable), ("a.txt", 9, False))
        with self.assertRaises(anthropic.BadRequestError):
            files.download(upload.id)
        session = self.client.beta.sessions.create(
            agent=self.agent("readupload", [TOOLSET]).id,
            environment_id=self.environment().id,
            resources=[{"type": "file", "file_id": upload.id, "mount_path": "/data/input.txt"}],
        )
        self.assertIn("The file says: forty-two", said(self.converse(session, message("read"))))
        self.assertEqual(files.delete(upload.id).type, "file_deleted")
        with self.assertRaises(anthropic.NotFoundError):
            files.retrieve_metadata(upload.id)

    def test_deliverables(self) -> None:
        session = self.session("deliver", [TOOLSET])
        self.converse(session, message("go"))
        files = {file.filename: file for file in self.client.beta.files.list(scope_id=session.id)}
        self.assertEqual(sorted(files), ["note.txt", "table.csv"])
        self.assertEqual(self.client.beta.files.download(files["table.csv"].id).read(), b"a,b\n1,2\n")

    def test_errors(self) -> None:
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.client.beta.agents.retrieve("agent_011CZkYpogX7uDKUyvBTophP")
        self.assertIn("Agent not found.", str(caught.exception))
        self.assertRegex(caught.exception.request_id, "^req_")
        with self.assertRaises(anthropic.BadRequestError):
            self.client.beta.agents.retrieve("nonsense")
        with self.assertRaises(anthropic.AuthenticationError):
            self.client.with_options(api_key="sk-ant-wrong").beta.agents.list()


if __name__ == "__main__":
    unittest.main()
