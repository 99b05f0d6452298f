"""Episodes on an OpenEnv server: one connection each, and never more connections than both ends allow.

An episode keeps its connection from its first reset to its end. If all connections are in use, a new episode waits;
since an episode never waits for another while it holds one, there is no deadlock. A full server reports its number of
sessions, which becomes the limit.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rla.envs.observation import EnvironmentFailure, Observation
from rla.errors import UserError
from rla.store.records import Task
from rla_bridges.adapters.openenv_actions import ActionForm, Unreadable, form_of, read_action, usage
from rla_bridges.adapters.openenv_client import Json, OpenEnvClient, Refused, Wire, WireAnswer
from rla_bridges.adapters.openenv_params import OpenEnvParams
from rla_bridges.adapters.openenv_reading import commands_of, line_of, observation_text, text_at
from rla_bridges.adapters.openenv_tools import LIST, ServerTool, call_text, calls_tools, read_call, told_tools, tools_of

FULL, INVALID = "CAPACITY_REACHED", "VALIDATION_ERROR"
FIRST_DELAY, LONGEST_DELAY = 0.05, 2.0  # seconds until a full server is tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """A server's description of itself. `form` is None if its actions are tool calls."""

    name: str
    about: str
    form: ActionForm | None


async def facts_of(client: OpenEnvClient) -> ServerFacts:
    """Raises UserError if no server answers, or if its actions cannot be written as text."""
    schema = await client.fetch("/schema")
    action = schema.get("action") if isinstance(schema, Mapping) else None
    if not isinstance(action, dict) or not isinstance(action.get("properties"), dict):
        raise UserError(f"env.own.id: {client.url}/schema has no schema of an action; is it an OpenEnv server?")
    metadata = await client.fetch("/metadata")
    form = None if calls_tools(action) else form_of(action)
    if form is not None and not form.fields:
        raise UserError(f"env.own.id: the actions of {client.url} have no field that a text could fill")
    return ServerFacts(name=text_at(metadata, "name")[:100], about=line_of(text_at(metadata, "description")), form=form)


class Places:
    """At most `limit` connections at a time."""

    def __init__(self, limit: int) -> None:
        self.limit, self._held, self._changed = limit, 0, asyncio.Condition()

    async def take(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._held < self.limit)
            self._held += 1

    async def give(self) -> None:
        async with self._changed:
            self._held -= 1
            self._changed.notify_all()


class OpenEnvService:
    """`rla.envs.protocols.Service`. The first reset contacts the server, and raises UserError if there is none."""

    def __init__(self, own: OpenEnvParams) -> None:
        self.own = own
        self._client = OpenEnvClient(own.id, timeout=own.timeout)
        self._places = Places(own.connections)
        self._asking = asyncio.Lock()
        self._facts: ServerFacts | None = None
        self._ending = set[asyncio.Task[None]]()

    def make(self, task: Task) -> OpenEnvEpisode:
        return OpenEnvEpisode(self, payload_of(task))

    async def facts(self) -> ServerFacts:
        """Requested once, then cached."""
        async with self._asking:
            if self._facts is None:
                self._facts = await facts_of(self._client)
            return self._facts

    async def begin(self, reset: Json) -> tuple[Wire, WireAnswer]:
        """A connection and its first answer. Raises EnvironmentFailure."""
        clock, delay = asyncio.get_running_loop().time, FIRST_DELAY
        refused_at: float | None = None
        while True:
            await self._places.take()
            wire: Wire | None = None
            try:
                wire = await self._client.connect()
                return wire, await wire.ask("reset", reset)
            except Refused as refused:
                await self._end(wire)
                refused_at = clock() if refused_at is None else refused_at
                if refused.code != FULL or clock() - refused_at > self.own.timeout:
                    raise EnvironmentFailure(str(refused)) from None
                self._places.limit = min(self._places.limit, refused.sessions or self._places.limit)
            except BaseException:
                self.release(wire)
                raise
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_DELAY)

    def release(self, wire: Wire | None) -> None:
        """End a connection in the background. Its place becomes free once the server has been told."""
        task = asyncio.get_running_loop().create_task(self._end(wire))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, wire: Wire | None) -> None:
        try:
            if wire is not None:
                await wire.close()
        finally:
            await self._places.give()

    async def close(self) -> None:
        """All episodes must be closed before."""
        await asyncio.gather(*self._ending, return_exceptions=True)
        await self._client.close()


class OpenEnvEpisode:
    """An `AwaitedEnvironment`: one session of a server. Raises EnvironmentFailure if the session fails."""

    def __init__(self, service: OpenEnvService, payload: Json, *, alone: bool = False) -> None:
        self._service, self._payload, self._alone = service, payload, alone
        self._wire: Wire | None = None
        self._tools: dict[str, ServerTool] = {}
        self._commands: tuple[str, ...] = ()
        self._earned = 0.0

    async def reset(self) -> Observation:
        facts = await self._service.facts()
        if self._payload["server"] != facts.name:
            raise UserError(
                f"env.own.id: {self._service.own.id} serves {facts.name!r}, but the tasks were made for "
                f"{self._payload['server']!r}; correct the address, or make new tasks with rla make-tasks --overwrite"
            )
        arguments = {**self._service.own.reset_arguments(), **self._payload["reset"]}
        self._earned = 0.0
        if self._wire is None:
            self._wire, answer = await self._service.begin(arguments)
        else:
            answer = await self._ask("reset", arguments)
        seen = self._observation(answer)
        if facts.form is None:
            self._tools = tools_of((await self._ask("step", LIST)).observation)
            return _with_text(seen, told_tools(self._tools))
        return seen if facts.form.plain else _with_text(seen, f"Actions are written as: {usage(facts.form)}")

    async def step(self, action: str) -> Observation:
        """The server's answer. If `action` does not fit the schema, only the policy is told and nothing is sent."""
        facts = await self._service.facts()
        try:
            data = read_call(action, self._tools) if facts.form is None else read_action(action, facts.form)
        except Unreadable as flaw:
            return self._told(f"That is not an action: {flaw}.")
        try:
            return self._observation(await self._asked("step", data))
        except Refused as refused:
            if refused.code != INVALID:
                raise EnvironmentFailure(str(refused)) from None
            return self._told(f"That action was refused: {refused.message}.")

    async def _asked(self, kind: str, data: Json) -> WireAnswer:
        if self._wire is None:
            raise EnvironmentFailure("the episode has no connection; it was never reset, or is closed")
        try:
            return await self._wire.ask(kind, data)
        except EnvironmentFailure:
            self._drop()
            raise

    async def _ask(self, kind: str, data: Json) -> WireAnswer:
        try:
            return await self._asked(kind, data)
        except Refused as refused:
            raise EnvironmentFailure(str(refused)) from None

    def _observation(self, answer: WireAnswer) -> Observation:
        self._earned += answer.reward
        if not math.isfinite(self._earned):
            raise EnvironmentFailure("the server's rewards are too large to add up")
        own, seen = self._service.own, answer.observation
        text = call_text(seen) if self._tools else None
        shown = {"text": text} if text is not None else seen
        self._commands = commands_of(seen)
        return Observation(
            text=observation_text(shown, field=own.text_field if text is None else "", longest=own.max_chars),
            commands=self._commands,
            won=seen.get("won") is True,
            done=answer.done,
            reward=self._earned,
        )

    def _told(self, text: str) -> Observation:
        return Observation(text=text, commands=self._commands, reward=self._earned)

    def _drop(self) -> None:
        if self._wire is not None:
            self._service.release(self._wire)
            self._wire = None

    def close(self) -> None:
        """Close the connection. If the event loop has ended, its connections have ended with it."""
        if not _in_event_loop():
            return
        self._drop()
        if self._alone:
            task = asyncio.get_running_loop().create_task(self._service.close())
            _CLOSING.add(task)
            task.add_done_callback(_CLOSING.discard)


# tasks of services for single episodes: an unreferenced task may be garbage-collected
_CLOSING = set[asyncio.Task[None]]()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _with_text(seen: Observation, more: str) -> Observation:
    parts = [part for part in (seen.text, more) if part]
    return replace(seen, text="\n\n".join(parts))


def payload_of(task: Task) -> dict[str, Any]:
    """A task's payload: the `server` that it belongs to, and its arguments of `reset`."""
    try:
        payload = json.loads(task.payload)
        if isinstance(payload["server"], str) and isinstance(payload["reset"], dict):
            return dict(payload)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise EnvironmentFailure(f"task {task.task_id} was not made for an OpenEnv server")
