"""Environments on an OpenEnv server, through its wire protocol: `--env openenv:http://127.0.0.1:8000`.

A task is an episode of the server: a seed (`env.own.select: seed`), or an entry of the server's own list of tasks
(`listed`). Its payload names the server's environment and not its address, so a server may move within a run. The
rewards of an episode's steps are added up; `env.reward_threshold` turns the sum into success.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rla.config import Config
from rla.envs.authoring import root_task
from rla.envs.chat_prompts import judge_prompt, policy_prompt
from rla.envs.observation import AwaitedEnvironment
from rla.envs.protocols import JudgePrompt, PolicyPrompt
from rla.errors import UserError
from rla.seeds import derive
from rla.store.records import Task
from rla_bridges.adapters.openenv_client import Json, OpenEnvClient
from rla_bridges.adapters.openenv_params import OpenEnvParams, check_openenv, openenv_params
from rla_bridges.adapters.openenv_reading import line_of, text_at
from rla_bridges.adapters.openenv_service import OpenEnvEpisode, OpenEnvService, ServerFacts, facts_of, payload_of

NAME = "openenv"
GOAL = "Earn as much reward as you can."  # if neither the parameters nor the server say more
AGENT = "an agent in an environment that answers its actions"
STARTS = 1 << 20  # first seeds of runs
HELD_OUT = 1 << 30  # seeds from here on belong to held-out tasks
LONGEST_GOAL = 2000  # characters


class OpenEnv:
    """The environment of an OpenEnv server."""

    name = NAME
    Params = OpenEnvParams

    def check(self, config: Config) -> None:
        check_openenv(config)

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        """Raises UserError if the server does not answer."""
        return asyncio.run(_tasks(config, split=split, seed=seed))

    def make(self, task: Task, config: Config) -> AwaitedEnvironment:
        return OpenEnvEpisode(OpenEnvService(openenv_params(config)), payload_of(task), alone=True)

    def service(self, config: Config) -> OpenEnvService:
        return OpenEnvService(openenv_params(config))

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        return policy_prompt(config, rules=openenv_params(config).rules)

    def judge_prompt(self, config: Config) -> JudgePrompt:
        return judge_prompt(config, rules=AGENT)


async def _tasks(config: Config, *, split: str, seed: int) -> list[Task]:
    own = openenv_params(config)
    client = OpenEnvClient(own.id, timeout=own.timeout)
    try:
        facts = await facts_of(client)
        if own.select == "listed":
            return await _listed_tasks(client, facts, config, split=split, seed=seed)
    finally:
        await client.close()
    first = derive(seed, NAME) % STARTS + (HELD_OUT if config.tasks.held_out(split) else 0)
    count = min(config.tasks.count(split), HELD_OUT - STARTS)
    return [_task(facts, {"seed": first + number}, config, split=split) for number in range(count)]


async def _listed_tasks(
    client: OpenEnvClient, facts: ServerFacts, config: Config, *, split: str, seed: int
) -> list[Task]:
    """Entries of the server's list for a split, sampled by the seed if there are more than requested."""
    names = await client.fetch("/list_environments")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
    path = f"/{quote(name, safe='')}" if name else ""
    counted = await client.fetch(f"{path}/num_tasks", {"split": split}) if name else None
    total = counted.get("num_tasks") if isinstance(counted, Mapping) else None
    if type(total) is not int or total <= 0:
        raise UserError(f"env.own.select is listed, but {client.url} lists no tasks of split {split!r}; set it to seed")
    rng = random.Random(derive(seed, NAME, split))
    drawn = sorted(rng.sample(range(total), min(total, config.tasks.count(split))))
    return [
        _listed_task(await client.fetch(f"{path}/task", {"split": split, "index": index}), facts, config, split, index)
        for index in drawn
    ]


def _listed_task(answer: Any, facts: ServerFacts, config: Config, split: str, index: int) -> Task:
    """The task of a list entry. If the server gives its tasks ids, the payload keeps the id: the list may change."""
    spec = answer.get("task") if isinstance(answer, Mapping) else None
    reset: dict[str, Any] = {"split": split, "index": index}
    if text_at(spec, "id"):
        reset["task_id"] = text_at(spec, "id")[:255]
    goal = line_of(text_at(spec, "instruction"), longest=LONGEST_GOAL)
    return _task(facts, reset, config, split=split, goal=goal, kind=text_at(spec, "kind")[:100])


def _task(facts: ServerFacts, reset: Json, config: Config, *, split: str, goal: str = "", kind: str = "") -> Task:
    return root_task(
        env=NAME,
        split=split,
        instruction=openenv_params(config).instruction or goal or facts.about or GOAL,
        content={"server": facts.name, "reset": dict(reset)},
        kind=kind or facts.name,
        scene=facts.name,
    )
