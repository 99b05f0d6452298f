"""Helpers around environments: tasks with ids, scripted episodes, labels, validated edits, texts for a tokenizer.

`examples/guess-number` uses most of them. `init-model` builds a tokenizer from the texts of the environment
(`Vocabulary`), or from single characters. A word-level tokenizer loses words that it does not know. So it always gets
the replies that judge and policy write, in addition to the texts of the environment.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from rla.config import Config
from rla.envs.observation import Environment, EnvironmentFailure, Observation, offered, settled
from rla.envs.protocols import (
    Course,
    Demonstrates,
    Demonstration,
    Env,
    Judged,
    Labelled,
    Phase,
    RejectedEdit,
    Vocabulary,
)
from rla.errors import UserError
from rla.store.records import Status, Task, content_id
from rla.text import whole_text

LONGEST_EDIT = 10_000  # characters
MOST_BRACKETS = 1000  # Python's JSON parser fails on deeper nesting


def root_task(*, env: str, split: str, instruction: str, content: Any, kind: str = "", scene: str = "") -> Task:
    """A task that is not derived from another one. `content` (plain JSON data) is its payload and determines its id."""
    payload = json.dumps(content, sort_keys=True)
    name = content_id(env, payload)
    return Task(
        task_id=name,
        env=env,
        split=split,
        slot=name,
        kind=kind or env,
        scene=scene or env,
        instruction=instruction,
        payload=payload,
    )


def changed_task(
    task: Task, *, content: Any, edit: Mapping[str, Any], taken: Collection[str], created: int, **fields: Any
) -> Task:
    """The pending child of `task` with other `content`; `fields` are further columns that change, such as `instruction`
    and `plan_length`. Raises RejectedEdit if such a task exists already.
    """
    payload = json.dumps(content, sort_keys=True)
    name = content_id(task.env, payload)
    if name == task.task_id or name in taken:
        raise RejectedEdit("there is such a task already")
    common = {"direction": None, "plan_length": None} | fields
    return replace(
        task,
        task_id=name,
        payload=payload,
        status=Status.PENDING.value,
        parent_id=task.task_id,
        depth=task.depth + 1,
        created=created,
        edit=json.dumps(edit, sort_keys=True),
        **common,
    )


def edit_values(edit: str, types: Mapping[str, type], *, optional: Mapping[str, type] | None = None) -> dict[str, Any]:
    """Parse an untrusted edit: a JSON object with exactly these names and types, and any of the `optional` ones.

    Raises RejectedEdit for everything else.
    """
    values = None
    if len(edit) <= LONGEST_EDIT and edit.count("[") + edit.count("{") <= MOST_BRACKETS:
        with suppress(ValueError):
            found = json.loads(edit)
            json.dumps(found, allow_nan=False, ensure_ascii=False).encode()  # refuses infinities and lone surrogates
            values = found if isinstance(found, dict) else None
    wanted = {**types, **{name: kind for name, kind in (optional or {}).items() if values and name in values}}
    if values is not None and {name: type(value) for name, value in values.items()} == wanted:
        return values
    told = ", ".join(f"{name!r}: {kind.__name__}" for name, kind in wanted.items())
    raise RejectedEdit(f"the edit is not a JSON object of {{{told}}}")


def play_through(
    game: Environment,
    choose: Callable[[Observation], str],
    *,
    config: Config,
    seed: int = 0,
    random_share: float = 0.0,
) -> Demonstration:
    """An episode of at most `env.max_steps` steps whose actions `choose` returns, except for a share that is drawn at
    random. Both see the commands that the policy is offered, without `env.omit_commands`.
    """
    rng, threshold = random.Random(seed), config.env.reward_threshold
    seen, actions = [_as_offered(game.reset(), config)], list[str]()
    while not (seen[-1].done or seen[-1].success(threshold)) and len(actions) < config.env.max_steps:
        drawn = rng.random() < random_share and seen[-1].commands
        actions.append(rng.choice(seen[-1].commands) if drawn else choose(seen[-1]))
        seen.append(_as_offered(game.step(actions[-1]), config))
    game.close()
    *before, last = seen
    return Demonstration(
        observations=[observation.text for observation in before],
        commands=[observation.commands for observation in before],
        actions=actions,
        final_observation=last.text,
        won=last.success(threshold),
        images=[one.images for one in seen] if any(one.images for one in seen) else (),
    )


def label_through(
    game: Environment,
    actions: Sequence[str],
    helps: Callable[[str], bool],
    *,
    config: Config,
    others: int = 0,
    seed: int = 0,
) -> list[list[Labelled]]:
    """Labels of an episode for `Labels.label`: for each step its action, then up to `others` of the other commands.

    `helps` tells whether an action helps in the current state of `game`. The other commands are tried on a copy of the
    game (`copy.deepcopy`). Reasons are empty.
    """
    rng, steps = random.Random(seed), list[list[Labelled]]()
    seen = _as_offered(game.reset(), config)
    for action in actions:
        left = [command for command in seen.commands if command != action]
        tried = rng.sample(left, min(others, len(left)))
        scores = {each: 1 if helps(each) else -1 for each in (action, *tried)}
        answers = {each: copy.deepcopy(game).step(each) for each in tried}
        answers[action] = seen = _as_offered(game.step(action), config)
        steps.append(
            [
                Labelled(
                    action=a,
                    next_observation=answers[a].text,
                    next_images=answers[a].images,
                    score=scores[a],
                    reason="",
                )
                for a in (action, *tried)
            ]
        )
    game.close()
    return steps


def course_of_one_phase(episodes: Sequence[Mapping[str, Any]], *, name: str = "playing") -> Course:
    """The course of episodes that are not divided into phases."""
    won = sum(episode["outcome"] == 1 for episode in episodes)
    steps = sum(len(episode["steps"]) for episode in episodes)
    phase = Phase(name=name, about=name, ended=len(episodes) - won, steps=steps)
    return Course(episodes=len(episodes), won=won, phases=(phase,), spent=((name, steps),) if steps else ())


def _as_offered(observation: Observation, config: Config) -> Observation:
    return replace(observation, commands=offered(observation.commands, config.env.omit_commands))


def is_text(value: str, *, longest: int) -> bool:
    """Whether the text is short enough, encodes to UTF-8 (no lone surrogates) and holds no NUL."""
    return len(value) <= longest and "\x00" not in value and whole_text(value) == value


SAMPLE = 64  # tasks that are played for their commands
STEPS = 12  # played steps per task, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class _TokenizerTexts:
    """The corpus of a tokenizer. `written`: texts whose pieces it must know, even if they are rare."""

    texts: Sequence[str]
    phrases: Sequence[str] = ()
    written: Sequence[str] = ()
    exact: bool = True


def tokenizer_texts(env: Env, tasks: Sequence[Task], config: Config) -> _TokenizerTexts:
    """The environment's own texts if it has a `Vocabulary`; otherwise each character is a token."""
    tasks = tasks[:SAMPLE]
    if not isinstance(env, Vocabulary):
        return _TokenizerTexts(texts=list(plain_texts(env, tasks, config)))
    return _TokenizerTexts(
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
