"""Checks of the required interface: name and parameters, tasks, episodes, and the prompts of the policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rla.config.load import build
from rla.config.schema import section_schema
from rla.envs.checking.subject import (
    HOSTILE,
    MARK,
    NO_ACTION,
    Check,
    InvalidAnswer,
    Subject,
    doing,
    encodable,
    error_line,
    not_repeated,
    refused_action,
    short,
    time_limit,
)
from rla.envs.observation import EnvironmentFailure, Observation
from rla.envs.protocols import Adapts, Demonstrates
from rla.envs.registry import REQUIRED
from rla.errors import UserError
from rla.store.records import Status, Task

TEXTS = ("task_id", "env", "split", "slot", "kind", "scene", "instruction", "payload")
ROLES = ("system", "user", "assistant")
READ = 40  # commands of an observation that are rendered and parsed


def _members(subject: Subject) -> Iterator[str]:
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


def _parameters_are_frozen(subject: Subject) -> Iterator[str]:
    """Params is a frozen dataclass with a default for each parameter"""
    params = subject.env.Params
    if not is_dataclass(params) or not params.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        yield f"{params.__name__} is not a frozen dataclass; decorate it with @dataclass(frozen=True, kw_only=True)"
        return
    try:
        params()
    except TypeError as error:
        yield f"{params.__name__}() fails ({error}); give each parameter a default"


def _parameters_are_json(subject: Subject) -> Iterator[str]:
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


def _named_as_installed(subject: Subject) -> Iterator[str]:
    """Its name is the name of its entry point"""
    if subject.env.name != subject.config.env.name:
        yield f"name is {short(subject.env.name)}, but it is installed as {short(subject.config.env.name)}"


def _tasks_are_there(subject: Subject) -> Iterator[str]:
    """tasks returns a list of tasks for the training split and for the held-out split, at most as many as asked for"""
    for held_out in (False, True):
        found, split = subject.drawn(held_out=held_out), subject.split(held_out=held_out)
        if not isinstance(found, list) or not found:
            yield f"tasks(split={split!r}) gives {short(found)}; return a list with at least one task"
            return
        wrong = next((task for task in found if not isinstance(task, Task)), None)
        if wrong is not None:
            yield f"tasks(split={split!r}) holds {short(wrong)}; its items must be rla.store.records.Task"
        asked = subject.config.tasks.count(split)
        if len(found) > asked:
            yield f"tasks(split={split!r}) gives {len(found)} tasks; config.tasks.count(split) asks for {asked} at most"


def _tasks_are_deterministic(subject: Subject) -> Iterator[str]:
    """Equal arguments give equal tasks"""
    return not_repeated("tasks", partial(subject.drawn, held_out=False), subject.drawn(held_out=False))


def _tasks_are_well_formed(subject: Subject) -> Iterator[str]:
    """Tasks have all columns: texts, a JSON payload, slot equal to task_id, env equal to name"""
    for held_out in (False, True):
        for task in subject.drawn(held_out=held_out):
            yield from invalid_task(
                task,
                env=subject.env.name,
                split=subject.split(held_out=held_out),
                slot=task.task_id,
                status=Status.ACTIVE.value,
                depth=0,
                created=0,
                parent_id=None,
                direction=None,
                edit=None,
            )


def invalid_task(task: Task, **wanted: Any) -> Iterator[str]:
    """Complaints about a task: texts that cannot be stored, its payload, and columns that differ from `wanted`."""
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
        yield f"payload of task {short(task.task_id)} is not a JSON text: {short(task.payload)}; use json.dumps"
    if task.plan_length is not None and type(task.plan_length) is not int:
        yield f"plan_length of task {short(task.task_id)} is {short(task.plan_length)}; it must be a number or None"
    for column, value in wanted.items():
        if getattr(task, column) != value:
            yield f"task {short(task.task_id)} has {column} {short(getattr(task, column))}; it must be {value!r}"


def _ids_are_of_content(subject: Subject) -> Iterator[str]:
    """Every task has its own id, and equal ids have equal content for every seed"""
    seen: dict[str, Task] = {}
    for task in subject.drawn(held_out=False):
        if task.task_id in seen:
            yield f"task_id {task.task_id} is there twice; leave one out, or let all that differs enter content_id"
        seen[task.task_id] = task
    for task in subject.drawn(held_out=False, seed=subject.seed + 1):
        other = seen.get(task.task_id, task)
        if (other.payload, other.instruction) != (task.payload, task.instruction):
            yield f"task_id {task.task_id} means another task with another seed; use content_id of its content"


def _splits_are_disjoint(subject: Subject) -> Iterator[str]:
    """No task is in two splits"""
    train, test = subject.drawn(held_out=False), subject.drawn(held_out=True)
    keys: dict[str, Callable[[Task], str]] = {"task_id": lambda t: t.task_id, "payload": lambda t: t.payload}
    if isinstance(subject.env, Adapts):
        keys["likeness"] = subject.env.likeness
    for name, key in keys.items():
        both = set(map(key, train)) & set(map(key, test))
        if both:
            yield f"{len(both)} held-out tasks have a {name} of training; draw the splits from disjoint ranges"


def _answers_are_observations(subject: Subject) -> Iterator[str]:
    """reset and step return a valid Observation; won implies done"""
    list(subject.all_episodes())  # raises InvalidAnswer
    return iter(())


def _equal_actions_give_equal_answers(subject: Subject) -> Iterator[str]:
    """Equal actions give equal answers, also in two episodes at the same time"""
    for task, played in subject.all_episodes():
        with subject.trial(task) as one, subject.trial(task) as other:
            answers = [(one.reset(), other.reset())]
            answers += [(one.step(action), other.step(action)) for action in played.actions]
        for which, number in (("played again", 0), ("played a third time, alongside the second", 1)):
            if found := _difference(played.seen, [pair[number] for pair in answers], played.actions):
                yield f"{which}, {found}; draw from a random.Random of the task, and share no state between episodes"


def _difference(first: list[Observation], second: list[Observation], actions: list[str]) -> str:
    """The first difference between two episodes with equal actions, in words; empty if they are equal."""
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        if one != other:
            after = "reset" if number == 0 else f"action {number} ({short(actions[number - 1])})"
            name = next(name for name in Observation.__slots__ if getattr(one, name) != getattr(other, name))
            return f"after {after}, {name} was {short(getattr(one, name))} and then {short(getattr(other, name))}"
    return ""


def _reset_starts_again(subject: Subject) -> Iterator[str]:
    """reset starts the same episode again"""
    for task in subject.tasks:
        played = subject.episodes(task)[0]
        try:
            with subject.trial(task) as game:
                game.reset()
                for action in played.actions[:3]:
                    game.step(action)
                again = [game.reset(), *(game.step(action) for action in played.actions)]
        except EnvironmentFailure as failure:
            yield f"a second reset, or a step after it, failed ({short(str(failure))}); forget what was done before"
            return
        if found := _difference(played.seen, again, played.actions):
            yield f"after a second reset: {found}; forget in reset what was done before"


def _steps_after_the_end(subject: Subject) -> Iterator[str]:
    """A step after the end raises EnvironmentFailure or returns done"""
    for task, played in subject.all_episodes():
        if not played.over:
            continue
        with subject.trial(task) as game:
            game.reset()
            for action in played.actions:
                game.step(action)
            try:
                answer = game.step(played.actions[-1])
            except EnvironmentFailure:
                continue
        if not answer.done:
            yield "a step after the end started the episode again; raise EnvironmentFailure, or return done again"


def _hostile_actions_are_answered(subject: Subject) -> Iterator[str]:
    """Hostile actions are answered, or raise EnvironmentFailure"""
    task, here = subject.tasks[0], Path(MARK)
    marked = here.exists()
    for what, action in HOSTILE.items():
        with subject.trial(task) as game:
            before = game.reset()
            try:
                answer = game.step(action)
            except EnvironmentFailure as failure:
                if what == NO_ACTION and before.commands:
                    said = error_line(failure, subject.env)
                    yield f"{short(action)} raised {said}; that is {what}: answer that nothing happens"
                continue
            except InvalidAnswer:
                raise
            except Exception as error:  # an environment may raise anything, and finding that out is the purpose
                yield f"{what} ({short(action)}) raised {error_line(error, subject.env)}; answer that nothing happens"
                return
            if before.commands and action not in before.commands and not answer.done:
                if not answer.commands:
                    yield f"after {what} no command is offered any more, and the episode is not done"
                    return
                try:
                    game.step(answer.commands[0])
                except EnvironmentFailure as failure:
                    yield f"after {what}, {refused_action('offered', answer.commands[0], failure)}"
        if here.exists() and not marked:
            yield f"{what} created the file {MARK} here: the action reached a shell; never hand a model's text to one"


def invalid_messages(messages: Any, *, of: str) -> Iterator[str]:
    """Complaints about a prompt that should be a list of messages."""
    if not isinstance(messages, list) or not messages:
        yield f"{of} gives {short(messages)}; return a list of messages"
        return
    for message in messages:
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            yield f"{of} holds {short(message)}; a message is {{'role': ..., 'content': ...}}"
            return
        if message["role"] not in ROLES:
            yield f"{of} holds the role {short(message['role'])}; choose one of {', '.join(ROLES)}"
        if not isinstance(message["content"], str) or not encodable(message["content"]):
            yield f"{of} holds the content {short(message['content'])}; it must be a text that UTF-8 can hold"
    if messages[-1]["role"] != "user":
        yield f"{of} ends with a message of the {messages[-1]['role']}; the last one must be of the user"


Step = tuple[list[tuple[str, str]], Observation, tuple[str, ...], str, Observation]


def steps_of(subject: Subject, task: Task) -> Iterator[Step]:
    """(history, observation, commands, action, next observation) of a demonstrated episode, or else of a random one."""
    played = subject.episodes(task)[-1]
    history: list[tuple[str, str]] = []
    for before, action, after in zip(played.seen, played.actions, played.seen[1:], strict=False):
        yield list(history), before, subject.offered(before), action, after
        history.append((before.text, action))


def _policy_prompts_are_messages(subject: Subject) -> Iterator[str]:
    """The policy's prompts are messages: opening, turn and window"""
    prompt = subject.env.policy_prompt(subject.config)
    for task in subject.tasks:
        for history, seen, commands, _, _ in steps_of(subject, task):
            with doing(note := f"of the observation {short(seen.text)}"):
                turn: Any = prompt.turn(seen.text, commands, task.instruction) if history else ""
                opening = None if history else prompt.opening(seen.text, commands)
            if not history:
                yield from invalid_messages(opening, of="policy_prompt.opening")
            if not isinstance(turn, str) or not encodable(turn):
                yield f"policy_prompt.turn gives {short(turn)}; return a text"
            with doing(note):
                window = prompt.window(history, seen.text, commands, task.instruction)
            yield from invalid_messages(window, of="policy_prompt.window")


def _policy_parses_what_it_renders(subject: Subject) -> Iterator[str]:
    """The policy's render and parse are inverse"""
    prompt = subject.env.policy_prompt(subject.config)
    for task in subject.tasks:
        for _, _, commands, action, _ in steps_of(subject, task):
            chosen = subject.rng("read").sample(commands, min(READ, len(commands)))
            for one in chosen or ([action] if isinstance(subject.env, Demonstrates) else []):
                with doing(f"of the action {short(one)}"):
                    read = prompt.parse(prompt.render(one, commands), commands)
                if read != one:
                    yield f"parse(render({short(one)})) is {short(read)}; render must write what parse reads"


def _hostile_replies_are_parsed(subject: Subject) -> Iterator[str]:
    """Hostile replies are parsed as a command that is offered, or as None"""
    prompt = subject.env.policy_prompt(subject.config)
    for _, _, commands, _, _ in steps_of(subject, subject.tasks[0]):
        for offer in (commands, ()):
            allowed = offer.__contains__ if offer else lambda read: isinstance(read, str)
            parse = partial(prompt.parse, commands=offer)
            wanted = "offered" if offer else "a text"
            yield from misread(subject, parse, allowed, of="policy_prompt.parse", wanted=wanted)
        return


def misread(
    subject: Subject, parse: Callable[[str], Any], allowed: Callable[[Any], bool], *, of: str, wanted: str
) -> Iterator[str]:
    """Complaints about a parser of replies that raises, or returns neither None nor an allowed value."""
    for what, reply in HOSTILE.items():
        try:
            with time_limit(subject.patience):
                read = parse(reply)
        except Exception as error:  # finding out what it raises is the purpose
            yield f"{of} of {what} raised {error_line(error, subject.env)}; return None"
            return
        if read is not None and not allowed(read):
            yield f"{of} of {what} gives {short(read)}, which is not {wanted}; return None"


PARAMETERS: tuple[Check, ...] = (_members, _parameters_are_frozen, _parameters_are_json)
TASKS: tuple[Check, ...] = (
    _named_as_installed,
    _tasks_are_there,
    _tasks_are_deterministic,
    _tasks_are_well_formed,
    _ids_are_of_content,
    _splits_are_disjoint,
)
EPISODES: tuple[Check, ...] = (
    _answers_are_observations,
    _equal_actions_give_equal_answers,
    _reset_starts_again,
    _steps_after_the_end,
    _hostile_actions_are_answered,
    _policy_prompts_are_messages,
    _policy_parses_what_it_renders,
    _hostile_replies_are_parsed,
)
