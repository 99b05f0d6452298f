"""Checks of what every environment has: its name, its parameters, its tasks and its episodes.

Answers have the right types, depend on the actions alone, and withstand hostile actions.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from rla.config.load import build
from rla.config.schema import section_schema
from rla.envs.checking.findings import (
    ACTIONS,
    MARK,
    Check,
    Overdue,
    Recorded,
    Subject,
    Unsound,
    doing,
    other_luck,
    raised,
    short,
    within,
)
from rla.envs.observation import AwaitedEnvironment, Environment, EnvironmentFailure, Observation, offered
from rla.envs.protocols import Adapts, Demonstrates
from rla.envs.registry import REQUIRED
from rla.errors import UserError
from rla.store.records import Status, Task

TEXTS = ("task_id", "env", "split", "slot", "kind", "scene", "instruction", "payload")


def members(subject: Subject) -> Iterator[str]:
    """It has the five members of Env, of their types"""
    env = subject.env
    missing = [name for name in REQUIRED if not hasattr(env, name)]
    if missing:
        yield f"it has no {', '.join(missing)}; add what rla.envs.protocols.Env says"
        return
    if not isinstance(env.name, str) or not env.name:
        yield f"name is {short(env.name)}; make it the name of its entry point"
    if not isinstance(env.Params, type):
        yield f"Params is {short(env.Params)}; make it a frozen dataclass"
    for name in REQUIRED[2:]:
        if not callable(getattr(env, name)):
            yield f"{name} is {short(getattr(env, name))}; make it a method"


def parameters_are_frozen(subject: Subject) -> Iterator[str]:
    """Params is a frozen dataclass with a default for each parameter"""
    params = subject.env.Params
    if not is_dataclass(params):
        yield f"{params.__name__} is no dataclass; write @dataclass(frozen=True, slots=True, kw_only=True) above it"
        return
    if not params.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        yield f"{params.__name__} is not frozen; write @dataclass(frozen=True, slots=True, kw_only=True) above it"
    try:
        params()
    except TypeError as error:
        yield f"{params.__name__}() fails ({error}); give each parameter a default"


def parameters_are_json(subject: Subject) -> Iterator[str]:
    """Parameters can be written as JSON and read back"""
    params = subject.env.Params
    try:
        json.dumps(section_schema(params))
        data = json.loads(json.dumps(asdict(params())))
        again = build(params, data, "params.yaml", "env.own.")
    except (TypeError, ValueError, KeyError, NameError, UserError) as error:
        yield (
            f"{type(error).__name__}: {short(str(error))}; use int, float, str, bool, Literal, "
            "tuple[X, ...], X | None and frozen dataclasses of them"
        )
        return
    if again != params():
        unequal = [e.name for e in fields(params) if getattr(again, e.name) != getattr(params(), e.name)]
        yield f"{', '.join(unequal)} is another value after it was written and read; change its type"


def named_as_installed(subject: Subject) -> Iterator[str]:
    """Its name is the one that it is installed by"""
    if subject.env.name != subject.config.env.name:
        yield f"name is {short(subject.env.name)}, but it is installed as {short(subject.config.env.name)}"


def own_parameters(subject: Subject) -> Iterator[str]:
    """config.env.own is an instance of Params"""
    if not isinstance(subject.config.env.own, subject.env.Params):
        yield f"config.env.own is {short(subject.config.env.own)}; read the config with rla.envs.registry.load_config"


def drawn(subject: Subject, held_out: bool, seed: int | None = None) -> list[Task]:
    names = subject.config.tasks
    split = names.test_splits[0] if held_out else names.train_split
    return subject.env.tasks(subject.config, split=split, seed=subject.seed if seed is None else seed)


def tasks_are_there(subject: Subject) -> Iterator[str]:
    """tasks gives a list of tasks for training and for the held-out split, and no more than are asked for"""
    for held_out in (False, True):
        found = drawn(subject, held_out)
        split = subject.config.tasks.test_splits[0] if held_out else subject.config.tasks.train_split
        if not isinstance(found, list) or not found:
            yield f"tasks(split={split!r}) gives {short(found)}; return a list with at least one task"
            return
        wrong = next((task for task in found if not isinstance(task, Task)), None)
        if wrong is not None:
            yield f"tasks(split={split!r}) holds {short(wrong)}; its items must be rla.store.records.Task"
        asked = subject.config.tasks.count(split)
        if len(found) > asked:
            yield f"tasks(split={split!r}) gives {len(found)} tasks; config.tasks.count(split) asks for {asked} at most"


def tasks_are_deterministic(subject: Subject) -> Iterator[str]:
    """Equal arguments give equal tasks"""
    first = drawn(subject, False)
    with other_luck(1):
        again = drawn(subject, False)
    if first != again:
        yield "tasks gave other tasks when it was called again; draw from random.Random(seed) alone"


def tasks_are_well_formed(subject: Subject) -> Iterator[str]:
    """Tasks have all columns: texts, a JSON payload, slot equal to task_id, env equal to name"""
    for held_out in (False, True):
        split = subject.config.tasks.test_splits[0] if held_out else subject.config.tasks.train_split
        for task in drawn(subject, held_out):
            yield from columns_of_root(task, name=subject.env.name, split=split)


def columns_of_root(task: Task, *, name: str, split: str) -> Iterator[str]:
    """Complaints about a task that was not changed."""
    yield from wrong_texts(task)
    wanted: dict[str, Any] = {"env": name, "split": split, "slot": task.task_id, "status": Status.ACTIVE.value}
    wanted |= {"depth": 0, "created": 0, "parent_id": None, "direction": None, "edit": None}
    for column, value in wanted.items():
        if getattr(task, column) != value:
            yield f"task {short(task.task_id)} has {column} {short(getattr(task, column))}; it must be {value!r}"


def wrong_texts(task: Task) -> Iterator[str]:
    """Complaints about columns of a task that cannot be written as text, and about its payload."""
    for column in TEXTS:
        text = getattr(task, column)
        if not isinstance(text, str):
            yield f"{column} of a task is {short(text)}; it must be a text"
            return
        if not text.isprintable() and column == "task_id":
            yield f"task_id is {short(text)}; use rla.store.records.content_id"
        if not encodable(text):
            yield f"{column} of a task holds half of a surrogate pair, which no file can hold: {short(text)}"
    if not task.task_id or not task.instruction:
        yield f"task {short(task.task_id)} has no task_id or no instruction"
    try:
        json.loads(task.payload)
    except (ValueError, RecursionError):
        yield f"payload of task {short(task.task_id)} is no JSON text: {short(task.payload)}; use json.dumps"
    if task.plan_length is not None and type(task.plan_length) is not int:
        yield f"plan_length of task {short(task.task_id)} is {short(task.plan_length)}; it must be a number or None"


def encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def ids_are_of_content(subject: Subject) -> Iterator[str]:
    """No two tasks share an id, and equal ids have equal content whatever the seed"""
    seen: dict[str, Task] = {}
    for task in drawn(subject, False):
        if task.task_id in seen:
            yield f"task_id {task.task_id} is there twice; leave one out, or let all that differs enter content_id"
        seen[task.task_id] = task
    for task in drawn(subject, False, seed=subject.seed + 1):
        other = seen.get(task.task_id, task)
        if (other.payload, other.instruction) != (task.payload, task.instruction):
            yield f"task_id {task.task_id} means another task with another seed; use content_id of its content"


def splits_are_disjoint(subject: Subject) -> Iterator[str]:
    """No task is in two splits"""
    train, test = drawn(subject, False), drawn(subject, True)
    for what in ("task_id", "payload"):
        both = {getattr(task, what) for task in train} & {getattr(task, what) for task in test}
        if both:
            yield f"{len(both)} held-out tasks have a {what} of training; draw the splits from disjoint ranges"
    if isinstance(subject.env, Adapts):
        both = set(map(subject.env.likeness, train)) & set(map(subject.env.likeness, test))
        if both:
            yield f"{len(both)} held-out tasks are like one of training (likeness); draw from disjoint ranges"


PARAMETERS: tuple[Check, ...] = (members, parameters_are_frozen, parameters_are_json)
TASKS: tuple[Check, ...] = (
    named_as_installed,
    own_parameters,
    tasks_are_there,
    tasks_are_deterministic,
    tasks_are_well_formed,
    ids_are_of_content,
    splits_are_disjoint,
)


PNG = b"\x89PNG\r\n\x1a\n"
SLACK = 1.0  # seconds after which an awaited answer blocks the event loop


class Trial:
    """One episode at a time. Its methods raise what the environment raises, Overdue, and Unsound."""

    def __init__(self, subject: Subject, task: Task, loop: asyncio.Runner) -> None:
        self._patience, self._loop = subject.patience, loop
        self._omit = subject.config.env.omit_commands
        with within(self._patience), doing(f"in make of the task {short(task.instruction)}"):
            self._game: Environment | AwaitedEnvironment = subject.env.make(task, subject.config)

    def reset(self) -> Observation:
        return self._answer(self._game.reset, after="reset")

    def step(self, action: str) -> Observation:
        return self._answer(lambda: self._game.step(action), after=f"action {short(action)}")

    def close(self) -> None:
        with within(self._patience):
            self._game.close()

    def commands(self, observation: Observation) -> tuple[str, ...]:
        """What the policy is offered."""
        return offered(observation.commands, self._omit)

    def _answer(self, ask: Callable[[], Any], *, after: str) -> Observation:
        with doing(f"at {after}"):
            with within(self._patience):
                answer = ask()
            if inspect.isawaitable(answer):
                answer = self._loop.run(self._awaited(answer))
        complaint = next(unsound(answer, after=after), "")
        if complaint:
            raise Unsound(complaint)
        observation: Observation = answer
        return observation

    async def _awaited(self, answer: Awaitable[Observation]) -> Observation:
        try:
            with within(self._patience + SLACK):
                async with asyncio.timeout(self._patience) as limit:
                    return await answer
        except TimeoutError:
            if limit.expired():
                raise Overdue from None
            raise


@contextmanager
def trial(subject: Subject, task: Task) -> Iterator[Trial]:
    """A trial that is closed at the end."""
    with asyncio.Runner() as loop:
        made = Trial(subject, task, loop)
        try:
            yield made
        finally:
            made.close()


def unsound(observation: Any, *, after: str) -> Iterator[str]:
    """Complaints about what an environment answered `after` a reset or an action."""
    if not isinstance(observation, Observation):
        yield f"{after}: the answer is {short(observation)}; return rla.envs.observation.Observation"
        return
    if not isinstance(observation.text, str) or not encodable(observation.text):
        yield f"{after}: text is {short(observation.text)}; it must be a text that UTF-8 can hold"
    yield from unsound_commands(observation.commands, after=after)
    for name in ("won", "done"):
        if type(getattr(observation, name)) is not bool:
            yield f"{after}: {name} is {short(getattr(observation, name))}; it must be True or False"
    if observation.won and not observation.done:
        yield f"{after}: won without done; an episode that is won is over, so set done as well"
    reward = observation.reward
    if reward is not None and (type(reward) not in (int, float) or not math.isfinite(reward)):
        yield f"{after}: reward is {short(reward)}; it must be a finite number or None"
    place = observation.place
    if place is not None and not (isinstance(place, str) and encodable(place)):
        yield f"{after}: place is {short(place)}; it must be None or a text that UTF-8 can hold"
    if not isinstance(observation.images, tuple):
        yield f"{after}: images is {short(observation.images)}; it must be a tuple of PNG files as bytes"
    elif not all(isinstance(image, bytes) and image.startswith(PNG) for image in observation.images):
        yield f"{after}: an image is no PNG file as bytes; encode it, for example with PIL's save(..., format='PNG')"


def unsound_commands(commands: Any, *, after: str) -> Iterator[str]:
    """Complaints about admissible commands."""
    if not isinstance(commands, tuple) or not all(isinstance(command, str) for command in commands):
        yield f"{after}: commands is {short(commands)}; it must be a tuple of texts"
        return
    if len(set(commands)) < len(commands):
        yield f"{after}: a command is offered twice; name each once"
    if not all(command.strip() and encodable(command) for command in commands):
        yield f"{after}: a command is empty or holds half of a surrogate pair"


def first_difference(first: Sequence[Observation], second: Sequence[Observation], actions: Sequence[str]) -> str:
    """Where two episodes of equal actions part, in words; empty where they do not."""
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        if one != other:
            after = "reset" if number == 0 else f"action {number} ({short(actions[number - 1])})"
            parts = [name for name in Observation.__slots__ if getattr(one, name) != getattr(other, name)]
            values = [short(getattr(each, parts[0])) for each in (one, other)]
            return f"after {after}, {parts[0]} was {values[0]} and then {values[1]}"
    return ""


FREE = ("look", "1", "yes", "42", "print(1)", "<action>go</action>", "I do not know.", "a b c")
NO_ACTION = "what the scheduler sends for a reply without an action"


def random_episode(subject: Subject, task: Task, rng: random.Random) -> Recorded:
    """At most `env.max_steps` random actions: commands where they are offered, other texts where they are not."""
    with trial(subject, task) as game:
        played = Recorded(game.reset())
        while not played.over and len(played.actions) < subject.config.env.max_steps:
            commands = game.commands(played.seen[-1])
            action = rng.choice(commands or FREE)
            try:
                played.add(action, game.step(action))
            except EnvironmentFailure as failure:
                if not commands:
                    break  # it may refuse what it never offered
                raise Unsound(refused_action("offered", action, failure)) from None
    return played


def told_episode(subject: Subject, task: Task, actions: list[str]) -> Recorded:
    """The demonstrated actions, as long as the episode lasts."""
    with trial(subject, task) as game:
        played = Recorded(game.reset())
        for action in actions:
            if played.over:
                break
            try:
                played.add(action, game.step(action))
            except EnvironmentFailure as failure:
                raise Unsound(refused_action("demonstrated", action, failure)) from None
    return played


def refused_action(how: str, action: str, failure: EnvironmentFailure) -> str:
    """The complaint about an action that should be possible."""
    told = "offer what is possible" if how == "offered" else "demonstrate what is possible"
    return f"the {how} command {short(action)} raised {raised(failure)}; {told}"


def demonstrated(subject: Subject, task: Task) -> list[str]:
    """Actions that lead somewhere, where the environment demonstrates any."""
    if not isinstance(subject.env, Demonstrates):
        return []
    return subject.env.demonstrate(task, subject.config, seed=subject.seed, random_share=0.0).actions


def played_of(subject: Subject, task: Task) -> list[Recorded]:
    """An episode of random actions and, where there is one, a demonstrated one. They are played once."""
    if task.task_id not in subject.recorded:
        played = [random_episode(subject, task, subject.rng(task.task_id))]
        if actions := demonstrated(subject, task):
            played.append(told_episode(subject, task, actions))
        subject.recorded[task.task_id] = played
    return subject.recorded[task.task_id]


def episodes(subject: Subject) -> Iterator[tuple[Task, Recorded]]:
    """Those of all tasks."""
    return ((task, played) for task in subject.tasks for played in played_of(subject, task))


def answers_are_observations(subject: Subject) -> Iterator[str]:
    """reset and step answer an Observation whose parts have the right types; won implies done"""
    list(episodes(subject))  # a trial raises Unsound
    return iter(())


def equal_actions_give_equal_answers(subject: Subject) -> Iterator[str]:
    """Equal actions give equal answers, also in two episodes at the same time"""
    for task, played in episodes(subject):
        with other_luck(2), trial(subject, task) as one, trial(subject, task) as other:
            answers = [(one.reset(), other.reset())]
            answers += [(one.step(action), other.step(action)) for action in played.actions]
        for which, told in (("played again", 0), ("played a third time beside the second", 1)):
            if found := first_difference(played.seen, [pair[told] for pair in answers], played.actions):
                yield f"{which}, {found}; draw from a random.Random of the task, and share no state between episodes"


def reset_starts_anew(subject: Subject) -> Iterator[str]:
    """reset starts the same episode again"""
    for task in subject.tasks:
        played = played_of(subject, task)[0]
        try:
            with trial(subject, task) as game:
                game.reset()
                for action in played.actions[:3]:
                    game.step(action)
                again = [game.reset(), *(game.step(action) for action in played.actions)]
        except EnvironmentFailure as failure:
            yield f"a second reset, or a step after it, failed ({short(str(failure))}); forget what was done before"
            return
        if found := first_difference(played.seen, again, played.actions):
            yield f"after a second reset: {found}; forget in reset what was done before"


def steps_after_the_end(subject: Subject) -> Iterator[str]:
    """A step after the end raises EnvironmentFailure or answers done"""
    for task, played in episodes(subject):
        if not played.over:
            continue
        with trial(subject, task) as game:
            game.reset()
            for action in played.actions:
                game.step(action)
            try:
                answer = game.step(played.actions[-1])
            except EnvironmentFailure:
                continue
        if not answer.done:
            yield "a step after the end began the episode anew; raise EnvironmentFailure, or answer done again"


def hostile_actions_are_answered(subject: Subject) -> Iterator[str]:
    """Hostile actions are answered, or raise EnvironmentFailure"""
    if not subject.tasks:
        return
    task, here = subject.tasks[0], Path(MARK)
    marked = here.exists()
    for what, action in ACTIONS.items():
        with trial(subject, task) as game:
            before = game.reset()
            try:
                answer = game.step(action)
            except EnvironmentFailure as failure:
                if what == NO_ACTION and before.commands:
                    said = raised(failure, subject.env)
                    yield f"{short(action)} raised {said}; that is {what}: answer that nothing happens"
                continue
            except Unsound:
                raise
            except Exception as error:  # an environment may raise anything, and to find that out is what this is for
                yield f"{what} ({short(action)}) raised {raised(error, subject.env)}; answer that nothing happens"
                return
            yield from still_playable(game, before, answer, action=action, what=what)
        if here.exists() and not marked:
            yield f"{what} made the file {MARK} here: the action reached a shell; never hand a model's text to one"


def still_playable(game: Trial, before: Observation, answer: Observation, *, action: str, what: str) -> Iterator[str]:
    """Complaints where a command that is offered cannot be taken any more."""
    if answer.done or not before.commands or action in before.commands:
        return
    if not answer.commands:
        yield f"after {what} no command is offered any more, and the episode is not done"
        return
    try:
        game.step(answer.commands[0])
    except EnvironmentFailure as failure:
        yield f"after {what}, the offered command {short(answer.commands[0])} raised {raised(failure)}"


def offered_commands_are_taken(subject: Subject) -> Iterator[str]:
    """Every command that is offered at the start can be taken"""
    for task in subject.tasks[:1]:
        with trial(subject, task) as game:
            commands = game.commands(game.reset())
        for command in subject.rng("taken").sample(commands, min(20, len(commands))):
            with trial(subject, task) as game:
                game.reset()
                try:
                    game.step(command)
                except EnvironmentFailure as failure:
                    yield refused_action("offered", command, failure)


EPISODES = (
    answers_are_observations,
    equal_actions_give_equal_answers,
    reset_starts_anew,
    steps_after_the_end,
    offered_commands_are_taken,
    hostile_actions_are_answered,
)
