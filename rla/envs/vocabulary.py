"""The texts from which `init-model` builds a tokenizer: those of the environment (`Vocabulary`), or single characters.

A word-level tokenizer loses words that it does not know. So it always gets the replies that judge and policy write, in
addition to the texts of the environment.
"""

from __future__ import annotations

import asyncio
import random
import string
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rla.config import Config
from rla.envs.observation import EnvironmentFailure, offered, settled
from rla.envs.protocols import Demonstrates, Env, Judged, Vocabulary
from rla.errors import UserError
from rla.store.records import Task

SAMPLE = 64  # tasks that are played for their commands
STEPS = 12  # played steps per task, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerTexts:
    """The corpus of a tokenizer. `written`: texts whose pieces it must know, even if they are rare."""

    texts: Sequence[str]
    phrases: Sequence[str] = ()
    written: Sequence[str] = ()
    exact: bool = True


def tokenizer_texts(env: Env, tasks: Sequence[Task], config: Config) -> TokenizerTexts:
    """The environment's own texts if it has a `Vocabulary`; otherwise each character is a token."""
    tasks = tasks[:SAMPLE]
    if not isinstance(env, Vocabulary):
        return TokenizerTexts(texts=list(plain_texts(env, tasks, config)))
    return TokenizerTexts(
        texts=list(env.tokenizer_texts(tasks, config)),
        phrases=env.tokenizer_phrases(config),
        written=() if env.exact_text else list(_written_texts(env, tasks, config)),
        exact=env.exact_text,
    )


def plain_texts(env: Env, tasks: Iterable[Task], config: Config) -> Iterator[str]:
    """Every printable character, the replies of the judge, and the instructions of the tasks."""
    yield from string.printable
    yield from _judge_texts(env, config)
    for task in tasks:
        yield task.instruction


def _judge_texts(env: Env, config: Config) -> Iterator[str]:
    if isinstance(env, Judged):
        prompt = env.judge_prompt(config)
        yield from prompt.replies() or (prompt.render(score, "") for score in (1, -1))
        yield "judge: no action"  # in its prompt about a reply without an action


def _written_texts(env: Env, tasks: Iterable[Task], config: Config) -> Iterator[str]:
    """The replies of the judge, and the commands or demonstrated actions as the policy writes them."""
    yield from _judge_texts(env, config)
    prompt = env.policy_prompt(config)
    for number, task in enumerate(tasks):
        with suppress(EnvironmentFailure, UserError):  # the task cannot be played on this machine
            found = asyncio.run(_offered_commands(env, task, config, rng=random.Random(number)))
            yield from (prompt.render(command, commands) for commands in found for command in commands)
            if not found and isinstance(env, Demonstrates):
                shown = env.demonstrate(task, config, seed=number, random_share=0.0)
                yield from (prompt.render(action, ()) for action in shown.actions)


async def _offered_commands(env: Env, task: Task, config: Config, *, rng: random.Random) -> list[tuple[str, ...]]:
    """The commands of each of the first steps of a random episode; empty if actions are free text."""
    game = env.make(task, config)
    found: list[tuple[str, ...]] = []
    try:
        seen = await settled(game.reset())
        while len(found) < min(STEPS, config.env.max_steps) and not seen.done:
            if not (commands := offered(seen.commands, config.env.omit_commands)):
                break
            found.append(commands)
            seen = await settled(game.step(rng.choice(commands)))
    finally:
        game.close()
    return found
