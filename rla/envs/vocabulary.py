"""The texts that the tokenizer of a new model is made of: the environment's own (`Vocabulary`), or plain ones.

Whatever an environment gives, a word-level tokenizer also gets the pieces of what policy and judge have to write: a
word that it does not know would be lost in every reply.
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

SAMPLE = 64  # tasks that are played for the tokenizer's vocabulary
STEPS = 12  # of each, at most, whose commands are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerTexts:
    """What a tokenizer is made of. `written`: texts whose pieces it has to know, however rare they are."""

    texts: Sequence[str]
    phrases: Sequence[str] = ()
    written: Sequence[str] = ()
    exact: bool = True


def tokenizer_texts(env: Env, tasks: Sequence[Task], config: Config) -> TokenizerTexts:
    """Of an environment that knows its vocabulary its own texts; of others every sign is a token."""
    tasks = tasks[:SAMPLE]
    if not isinstance(env, Vocabulary):
        return TokenizerTexts(texts=list(plain_texts(env, tasks, config)))
    return TokenizerTexts(
        texts=list(env.tokenizer_texts(tasks, config)),
        phrases=env.tokenizer_phrases(config),
        written=() if env.exact_text else list(written_texts(env, tasks, config)),
        exact=env.exact_text,
    )


def plain_texts(env: Env, tasks: Iterable[Task], config: Config) -> Iterator[str]:
    """Every printable sign by itself, the instructions of the tasks, and what the judge may reply."""
    yield from string.printable
    yield from judge_texts(env, config)
    for task in tasks:
        yield task.instruction


def judge_texts(env: Env, config: Config) -> Iterator[str]:
    """What a judge of the environment may reply, and what stands in its prompts for a reply without an action."""
    if isinstance(env, Judged):
        prompt = env.judge_prompt(config)
        yield from prompt.replies() or (prompt.render(score, "") for score in (1, -1))
        yield "judge: no action"


def written_texts(env: Env, tasks: Iterable[Task], config: Config) -> Iterator[str]:
    """What the judge may reply, and the commands, or the demonstrated actions, as the policy writes them."""
    yield from judge_texts(env, config)
    prompt = env.policy_prompt(config)
    for number, task in enumerate(tasks):
        with suppress(EnvironmentFailure, UserError):  # it cannot be played here
            found = asyncio.run(offered_commands(env, task, config, rng=random.Random(number)))
            yield from (prompt.render(command, commands) for commands in found for command in commands)
            if not found and isinstance(env, Demonstrates):
                shown = env.demonstrate(task, config, seed=number, random_share=0.0)
                yield from (prompt.render(action, ()) for action in shown.actions)


async def offered_commands(env: Env, task: Task, config: Config, *, rng: random.Random) -> list[tuple[str, ...]]:
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
