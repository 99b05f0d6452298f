"""Episodes of small programs against a scripted policy."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rla_gateway.gateway import Gateway

from rla.config import Config
from rla.envs.authoring import root_task
from rla.envs.registry import environment, from_mapping
from rla.llm.base import Completion, Generator, Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import ScriptedGenerator
from rla.models.init import new_tokenizer
from rla.rollouts.play import Rollouts, episodes_of, play_groups
from rla.seeds import derive
from rla.store.records import Task, Trajectory

PYTHON = [sys.executable, "-I", "-S"]
BOXED = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is missing")
READABLE = [str(Path(PYTHON[0]).parents[1])]  # the virtual environment
# What the programs of the tests begin with: `ask(messages)` is a request, with nothing but the standard library.
HEAD = """
import http.client, json, os, sys, threading, time
from urllib.parse import urlsplit
base = urlsplit(os.environ["OPENAI_BASE_URL"])
def post(body, key=os.environ["OPENAI_API_KEY"], base=base, **headers):
    wire = http.client.HTTPConnection(base.hostname, base.port)
    wire.request("POST", base.path + "/chat/completions", body, {"Authorization": "Bearer " + key, **headers})
    found = wire.getresponse()
    return found.status, json.loads(found.read())
def ask(messages, **more):
    status, found = post(json.dumps({"model": "any", "messages": messages, **more}))
    if status != 200: sys.exit("status %d: %s" % (status, found["error"]["message"]))
    return found["choices"][0]["message"]
def user(text): return {"role": "user", "content": text}
"""


@cache
def chat() -> ChatFormat:
    return ChatFormat(new_tokenizer(["a b c"], context=4096, exact=True))


def config_of(command: Sequence[str], **own: Any) -> Config:
    max_steps, context, max_tokens = own.pop("max_steps", 8), own.pop("context", 4096), own.pop("max_tokens", 64)
    return from_mapping(
        {
            "env": {"name": "agent", "max_steps": max_steps, "own": {"command": list(command)} | own},
            "policy": {"max_tokens": max_tokens, "temperature": 0.8},
            "generator": {"context": context},
        },
        where="test",
    )


def task_of(**row: Any) -> Task:
    row = {"instruction": "count"} | row
    return root_task(env="agent", split="train", instruction=row["instruction"], content=row)


def said(*replies: str, format: ChatFormat | None = None) -> Callable[[Request, int], list[int]]:
    """The replies in turn."""
    left = iter(replies)
    used = format or chat()
    return lambda request, seed: [*used.encode(next(left)), used.end_id]


class Slow(ScriptedGenerator):
    """Replies after some seconds."""

    def __init__(self, seconds: float, reply: Callable[[Request, int], list[int]]) -> None:
        super().__init__(reply, context=4096)
        self.seconds = seconds

    async def generate(self, request: Request) -> list[Completion]:
        await asyncio.sleep(self.seconds)
        return await super().generate(request)


def play(
    source: str | Sequence[str],
    reply: Callable[[Request, int], list[int]] | Generator,
    *,
    tasks: Sequence[Task] = (),
    count: int = 1,
    format: ChatFormat | None = None,
    during: Callable[[Gateway], Any] | None = None,
    **own: Any,
) -> list[Trajectory]:
    """The episodes of a program: `source` in Python, after HEAD, or a command. `during`: awaited beside them."""
    command = [*PYTHON, "-c", HEAD + source] if isinstance(source, str) else source
    config, found = config_of(command, **own), list[Trajectory]()
    context = config.generator.context
    engine = ScriptedGenerator(reply, context=context) if callable(reply) else reply
    tasks = tasks or [task_of()]

    async def episodes() -> None:
        gateway = Gateway(config)
        shared = Rollouts(
            generator=engine,
            chat=format or chat(),
            prompt=environment("agent").policy_prompt(config),
            config=config.policy,
            env=config.env,
            make_env=gateway.make,
            iteration=1,
            policy="0",
        )
        beside = asyncio.ensure_future(during(gateway)) if during else None
        try:
            groups = [episodes_of(task, count=count, seed=0, iteration=1) for task in tasks]
            await play_groups(groups, shared, concurrency=64, finished=lambda _, group: found.extend(group))
        finally:
            if beside is not None:
                await beside
            await gateway.close()

    asyncio.run(episodes())
    return found


def replayed(rows: Sequence[Mapping[str, Any]]) -> Callable[[Request, int], list[int]]:
    """An engine that answers with the tokens of recorded episodes, whatever the order of the episodes."""
    recorded = {
        derive(row["seed"], number): row["segments"][step["segment"]]["token_ids"][step["start"] : step["end"]]
        for row in rows
        for number, step in enumerate(row["steps"])
    }
    return lambda request, seed: list(recorded[seed])
