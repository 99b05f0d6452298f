"""The checks: of the required interface first, then of each optional protocol.

A check is a function of a `Subject` and of its environment that yields complaints: what is broken and how to fix it.
The first line of its docstring states the contract. Only the first complaint is reported, because the others often
have the same cause.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rla.config.load import build
from rla.config.schema import section_schema
from rla.envs import protocols
from rla.envs.authoring import tokenizer_texts
from rla.envs.observation import EnvironmentFailure, settled
from rla.envs.protocols import Adapts, Demonstrates, Demonstration, Env, Judged, Labelled, Labels, RejectedEdit
from rla.envs.registry import REQUIRED
from rla.errors import UserError
from rla.models.init import UNKNOWN, word_tokenizer
from rla.store.records import Direction, Status, Task
from rla_study.contract.subject import (
    HOSTILE,
    MARK,
    NO_ACTION,
    InvalidAnswer,
    Subject,
    doing,
    error_line,
    first_difference,
    hostile_edits,
    invalid_messages,
    invalid_task,
    is_utf8,
    misread,
    not_repeated,
    refused_action,
    short,
)

READ = 40  # commands of an observation that are rendered and parsed
OTHERS = 2  # labels of other commands that are asked for
COUNT = 4  # edits that are asked for
CREATED = 3


class Check(NamedTuple):
    """`first`: the checks after it depend on it. `makes`: a UserError says why this machine cannot make an episode."""

    protocol: type
    run: Callable[[Subject, Any], Iterator[str]]
    first: bool = False
    makes: bool = False


CHECKS: list[Check] = []
PARAMETERS = 2  # as many checks need no config


def _check(protocol: type, **options: bool) -> Callable[[Any], Any]:
    """Adds the decorated function to `CHECKS`."""

    def add(run: Any) -> Any:
        CHECKS.append(Check(protocol, run, **options))
        return run

    return add


@_check(Env, first=True)
def _members(subject: Subject, env: Env) -> Iterator[str]:
    """It has the five members of Env, of their types"""
    for name in REQUIRED:
        value = getattr(env, name, None)
        fits = {"name": isinstance(value, str) and value, "Params": isinstance(value, type)}
        if not fits.get(name, callable(value)):
            yield f"{name} is {short(value)}; see rla.envs.protocols.Env"


@_check(Env, first=True)
def _parameters_are_json(subject: Subject, env: Env) -> Iterator[str]:
    """Params is a frozen dataclass with defaults, which can be written as JSON and read back"""
    params: Any = env.Params
    if not getattr(getattr(params, "__dataclass_params__", None), "frozen", False):
        yield f"{params.__name__} is not a frozen dataclass; decorate it with @dataclass(frozen=True, kw_only=True)"
    try:
        default = params()
    except TypeError as error:
        yield f"{params.__name__}() fails ({error}); give each parameter a default"
    try:
        json.dumps(section_schema(params))
        again = build(params, json.loads(json.dumps(asdict(default))), "params.yaml", "env.own.")
    except (TypeError, ValueError, KeyError, NameError, UserError) as error:
        types = "int, float, str, bool, Literal, tuple[X, ...], X | None and frozen dataclasses of them"
        yield f"{type(error).__name__}: {short(str(error))}; use {types}"
    if unequal := [e.name for e in fields(params) if getattr(again, e.name) != getattr(default, e.name)]:
        yield f"{', '.join(unequal)} is another value after it was written and read; change its type"


@_check(Env, first=True)
def _tasks_are_there(subject: Subject, env: Env) -> Iterator[str]:
    """tasks returns equal lists for equal arguments, for both splits, of at most as many tasks as asked for"""
    for split, found in subject.pools.items():
        if not isinstance(found, list) or not found:
            yield f"tasks(split={split!r}) gives {short(found)}; return a list with at least one task"
        for task in found:
            if not isinstance(task, Task):
                yield f"tasks(split={split!r}) holds {short(task)}; its items must be rla.store.records.Task"
        asked = subject.config.tasks.count(split)
        if len(found) > asked:
            yield f"tasks(split={split!r}) gives {len(found)} tasks; config.tasks.count(split) asks for {asked} at most"
        yield from not_repeated("tasks", partial(subject.drawn, split), found)


@_check(Env, first=True)
def _tasks_are_well_formed(subject: Subject, env: Env) -> Iterator[str]:
    """Tasks have all columns: texts, a JSON payload, slot equal to task_id, env equal to name and entry point"""
    if env.name != subject.config.env.name:
        yield f"name is {short(env.name)}, but it is installed as {short(subject.config.env.name)}"
    root = {"env": env.name, "status": Status.ACTIVE.value, "depth": 0, "created": 0}
    root |= dict.fromkeys(("parent_id", "direction", "edit"))
    for split, found in subject.pools.items():
        for task in found:
            yield from invalid_task(task, **root, split=split, slot=task.task_id)


@_check(Env, first=True)
def _ids_are_of_content(subject: Subject, env: Env) -> Iterator[str]:
    """Every task has its own id, and equal ids have equal content for every seed"""
    split, train = next(iter(subject.pools.items()))
    seen = {task.task_id: task for task in train}
    if len(seen) < len(train):
        yield "a task_id is there twice; leave one out, or let all that differs enter content_id"
    for task in subject.drawn(split, more=1):
        other = seen.get(task.task_id, task)
        if (other.payload, other.instruction) != (task.payload, task.instruction):
            yield f"task_id {task.task_id} means another task with another seed; use content_id of its content"


@_check(Env, first=True)
def _splits_are_disjoint(subject: Subject, env: Env) -> Iterator[str]:
    """No task is in two splits"""
    train, test = subject.pools.values()
    keys: dict[str, Callable[[Task], str]] = {"task_id": lambda t: t.task_id, "payload": lambda t: t.payload}
    if isinstance(env, Adapts):
        keys["likeness"] = env.likeness
    for name, key in keys.items():
        if both := set(map(key, train)) & set(map(key, test)):
            yield f"{len(both)} held-out tasks have a {name} of training; draw the splits from disjoint ranges"


@_check(Env, first=True, makes=True)
def _episode_can_be_made(subject: Subject, env: Env) -> Iterator[str]:
    """An episode can be made"""
    if isinstance(env, protocols.Pooled):
        env.warm(subject.config)
    env.make(subject.tasks[0], subject.config).close()
    return iter(())


@_check(Env, first=True)
def _answers_are_observations(subject: Subject, env: Env) -> Iterator[str]:
    """reset and step return a valid Observation; won implies done"""
    list(subject.all_episodes())  # raises InvalidAnswer
    return iter(())


@_check(Env)
def _equal_actions_give_equal_answers(subject: Subject, env: Env) -> Iterator[str]:
    """Equal actions give equal answers, also in two episodes at the same time"""
    for task, played in subject.all_episodes():
        with subject.trial(task) as one, subject.trial(task) as other:
            answers = [(one.reset(), other.reset())]
            answers += [(one.step(action), other.step(action)) for action in played.actions]
        for which, number in (("played again", 0), ("played a third time, alongside the second", 1)):
            if found := first_difference(played.seen, [pair[number] for pair in answers], played.actions):
                yield f"{which}, {found}; draw from a random.Random of the task, and share no state between episodes"


@_check(Env)
def _reset_starts_again(subject: Subject, env: Env) -> Iterator[str]:
    """reset starts the same episode again"""
    for task in subject.tasks:
        played = subject.episodes(task)[0]
        try:
            with subject.trial(task) as game:
                game.play(played.actions[:3])
                found = first_difference(played.seen, game.play(played.actions), played.actions)
        except EnvironmentFailure as failure:
            found = f"it failed ({short(str(failure))})"
        if found:
            yield f"after a second reset: {found}; forget in reset what was done before"


@_check(Env)
def _steps_after_the_end(subject: Subject, env: Env) -> Iterator[str]:
    """A step after the end raises EnvironmentFailure or returns done"""
    for task, played in subject.all_episodes():
        if not played.over:
            continue
        with subject.trial(task) as game:
            game.play(played.actions)
            try:
                answer = game.step(played.actions[-1])
            except EnvironmentFailure:
                continue
        if not answer.done:
            yield "a step after the end started the episode again; raise EnvironmentFailure, or return done again"


@_check(Env)
def _hostile_actions_are_answered(subject: Subject, env: Env) -> Iterator[str]:
    """Hostile actions are answered, or raise EnvironmentFailure"""
    marked = Path(MARK).exists()
    for what, action in HOSTILE.items():
        with subject.trial(subject.tasks[0]) as game:
            before = game.reset()
            try:
                answer = game.step(action)
            except InvalidAnswer:
                raise
            except Exception as error:  # an environment may raise anything, and finding that out is the purpose
                if not isinstance(error, EnvironmentFailure) or (what == NO_ACTION and before.commands):
                    yield f"{what} ({short(action)}) raised {error_line(error, env)}; answer that nothing happens"
                continue
            if before.commands and action not in before.commands and not answer.done:
                if not answer.commands:
                    yield f"after {what} no command is offered any more, and the episode is not done"
                try:
                    game.step(answer.commands[0])
                except EnvironmentFailure as failure:
                    yield f"after {what}, {refused_action(answer.commands[0], failure)}"
        if Path(MARK).exists() and not marked:
            yield f"{what} created the file {MARK} here: the action reached a shell; never hand a model's text to one"


@_check(Env)
def _policy_prompts_are_messages(subject: Subject, env: Env) -> Iterator[str]:
    """The policy's prompts are messages: opening, turn and window"""
    prompt = env.policy_prompt(subject.config)
    for task in subject.tasks:
        for history, seen, commands, _, _ in subject.steps(task):
            if not history:
                yield from invalid_messages(prompt.opening(seen.text, commands), of="policy_prompt.opening")
            elif not is_utf8(turn := prompt.turn(seen.text, commands, task.instruction)):
                yield f"policy_prompt.turn gives {short(turn)}; return a text"
            window = prompt.window(history, seen.text, commands, task.instruction)
            yield from invalid_messages(window, of="policy_prompt.window")


@_check(Env)
def _policy_parses_what_it_renders(subject: Subject, env: Env) -> Iterator[str]:
    """The policy's render and parse are inverse; other replies are parsed as an offered command, or as None"""
    prompt = env.policy_prompt(subject.config)
    for task in subject.tasks:
        for _, _, commands, action, _ in subject.steps(task):
            chosen = subject.rng("read").sample(commands, min(READ, len(commands)))
            for one in chosen or ([action] if isinstance(env, Demonstrates) else []):
                if (read := prompt.parse(prompt.render(one, commands), commands)) != one:
                    yield f"parse(render({short(one)})) is {short(read)}; render must write what parse reads"
    _, _, commands, _, _ = next(subject.steps(subject.tasks[0]))
    yield from misread(subject, partial(prompt.parse, commands=commands), commands, of="policy_prompt.parse")
    yield from misread(subject, partial(prompt.parse, commands=()), (), of="policy_prompt.parse")


@_check(protocols.Shares)
def _service_plays(subject: Subject, env: protocols.Shares) -> Iterator[str]:
    """The service plays an episode, and closes"""
    task = subject.tasks[0]
    action = subject.episodes(task)[-1].actions[0]

    async def play() -> list[str]:
        service = env.service(subject.config)
        try:
            with closing(service.make(task)) as game:
                return [(await settled(game.reset())).text, (await settled(game.step(action))).text]
        finally:
            await service.close()

    with subject.trial(task) as game:
        alone = [seen.text for seen in game.play([action])]
    if (shared := asyncio.run(play())) != alone:
        yield f"an episode of the service shows {short(shared)}, and one of make shows {short(alone)}"


@_check(Demonstrates)
def _demonstrations_can_be_played(subject: Subject, env: Demonstrates) -> Iterator[str]:
    """Demonstrations are deterministic, and can be played with the commands that they name"""
    for task in subject.tasks:
        for share in (0.0, 0.5):
            call = partial(env.demonstrate, task, subject.config, seed=subject.seed, random_share=share)
            yield from _unplayable(subject, task, call, of="demonstrate")


@_check(protocols.HasExpert)
def _expert_can_be_played(subject: Subject, env: protocols.HasExpert) -> Iterator[str]:
    """The expert's episodes are deterministic, and can be played with the commands that they name"""
    for task in subject.tasks:
        call = partial(env.play_expert, task, subject.config, seed=subject.seed)
        yield from _unplayable(subject, task, call, of="play_expert")


def _unplayable(subject: Subject, task: Task, call: Callable[[], Demonstration], *, of: str) -> Iterator[str]:
    """Complaints about a demonstration that differs from the episode of its actions."""
    shown = call()
    yield from not_repeated(of, call, shown)
    sizes = {len(shown.observations), len(shown.commands), len(shown.actions)}
    if len(sizes) > 1 or not shown.actions:
        yield f"{of} gives {sorted(sizes)} observations, commands and actions; give one of each per step"
    with subject.trial(task) as game:
        seen = game.reset()
        steps = zip(shown.observations, shown.commands, shown.actions, strict=True)
        for number, (text, commands, action) in enumerate(steps):
            if commands and action not in commands:
                yield f"step {number} of {of} takes {short(action)}, which its commands do not hold; leave it out"
            if seen.text != text:
                yield f"step {number} of {of} shows {short(text)}, but the episode shows {short(seen.text)}"
            try:
                seen = game.step(action)
            except EnvironmentFailure as failure:
                yield f"step {number} of {of}, {short(action)}, raised EnvironmentFailure: {short(str(failure))}"


@_check(Labels)
def _labels_fit_the_actions(subject: Subject, env: Labels) -> Iterator[str]:
    """There are labels for each action, and they show the observations of the episode"""
    known = False
    for task in subject.tasks:
        played = subject.episodes(task)[0]
        for others in (0, OTHERS):
            labels = env.label(task, subject.config, played.actions, others=others, seed=subject.seed)
            if not labels:
                continue
            known = True
            if len(labels) != len(played.actions):
                yield f"label gives {len(labels)} steps for {len(played.actions)} actions; give one for each"
            steps = zip(labels, played.actions, played.seen, played.seen[1:], strict=False)
            for number, (step, action, before, after) in enumerate(steps):
                for complaint in _invalid_labels(step, action, subject.offered(before), after.text, others=others):
                    yield f"step {number}: {complaint}"
    if not known:
        yield "label gives nothing for any of these tasks, so no judge of theirs can be measured; check others"


def _invalid_labels(
    step: list[Labelled], action: str, commands: tuple[str, ...], answer: str, *, others: int
) -> Iterator[str]:
    if not step or step[0].action != action:
        yield f"the first label is not of the action taken, {short(action)}"
    said = step[0].next_observation
    if said != answer:
        yield f"label says that {short(action)} led to {short(said)}, but the episode showed {short(answer)}"
    if len(step) > 1 + others:
        yield f"there are labels of {len(step) - 1} other actions, and {others} were asked for at most"
    for one in step:
        if one is not step[0] and commands and one.action not in commands:  # without commands actions are free text
            yield f"there is a label of {short(one.action)}, which was not offered"
        if one.score not in (1, -1):
            yield f"a label has the score {short(one.score)}; it must be 1 or -1"


@_check(Judged)
def _judge_prompts_are_messages(subject: Subject, env: Judged) -> Iterator[str]:
    """The judge's prompts are messages"""
    prompt, policy = env.judge_prompt(subject.config), subject.env.policy_prompt(subject.config)
    for task in subject.tasks:
        for history, seen, commands, action, following in subject.steps(task):
            said = policy.render(action, commands) if not commands or action in commands else action
            for reply in (said, *([] if history else [HOSTILE["tokens that end a turn"]])):
                view = protocols.JudgeView(
                    instruction=task.instruction,
                    history=history,
                    observation=seen.text,
                    commands=commands,
                    reply=reply,
                    action=action if reply == said else "no action",
                    valid=reply == said,
                    next_observation=following.text,
                )
                yield from invalid_messages(prompt.messages(view), of="judge_prompt.messages")


@_check(Judged)
def _judge_parses_what_it_renders(subject: Subject, env: Judged) -> Iterator[str]:
    """The judge's render and parse are inverse, and its replies all parse"""
    prompt = env.judge_prompt(subject.config)
    for score in (1, -1):
        for reason in ("", "it makes progress"):
            if (read := prompt.parse(prompt.render(score, reason))) != score:
                yield f"parse(render({score}, {reason!r})) is {short(read)}; render must write what parse reads"
    replies = prompt.replies()
    if not isinstance(replies, tuple):
        yield f"judge_prompt.replies gives {short(replies)}; return a tuple of texts"
    scores = {prompt.parse(reply): reply for reply in replies}
    for read, reply in scores.items():
        if read not in (1, -1):
            yield f"{short(reply)} of judge_prompt.replies is read as {short(read)}, not as 1 or -1"
    if replies and scores.keys() != {1, -1}:
        yield "judge_prompt.replies has no reply for one of the scores 1 and -1"
    if not replies and subject.config.judge.decoding == "admissible":
        yield "judge.decoding is admissible, and judge_prompt.replies is empty; name all replies that may be said"
    yield from misread(subject, prompt.parse, (1, -1), of="judge_prompt.parse")
    if replies and isinstance(subject.env, Labels):
        for task in subject.tasks:
            labels = subject.env.label(task, subject.config, subject.episodes(task)[0].actions)
            for taught in (prompt.render(one.score, one.reason) for step in labels for one in step):
                if taught not in replies:
                    yield f"a label teaches {short(taught)}, which judge_prompt.replies lacks; add its reason there"


@_check(protocols.Teaches)
def _lessons_are_messages(subject: Subject, env: protocols.Teaches) -> Iterator[str]:
    """Lessons are messages with replies, and equal arguments give equal lessons"""
    for task in subject.tasks:
        call = partial(env.lesson, task, subject.config, seed=subject.seed)
        lesson = call()
        yield from invalid_messages(lesson.messages, of="lesson")
        if not lesson.replies or not all(isinstance(reply, str) for reply in lesson.replies):
            yield f"the replies of a lesson are {short(lesson.replies)}; give one text or more"
        yield from not_repeated("lesson", call, lesson)


@_check(protocols.Vocabulary)
def _vocabulary_is_complete(subject: Subject, env: protocols.Vocabulary) -> Iterator[str]:
    """Texts and phrases for a tokenizer are texts, and replies survive encoding and decoding"""
    for text in (*env.tokenizer_texts(subject.tasks, subject.config), *env.tokenizer_phrases(subject.config)):
        if not isinstance(text, str):
            yield f"tokenizer_texts or tokenizer_phrases gives {short(text)}; they must give texts"
    if not env.exact_text:  # an exact tokenizer knows every text
        yield from _lost_words(subject, subject.env)


def _lost_words(subject: Subject, env: Env) -> Iterator[str]:
    """Complaints about replies that the word-level tokenizer of `init-model` does not preserve."""
    found = tokenizer_texts(env, subject.pools[subject.config.tasks.train_split], subject.config)
    tokenizer = word_tokenizer(found.texts, phrases=found.phrases, written=found.written)

    def lost(text: str, read: Callable[[str], Any]) -> Iterator[str]:
        encoded = tokenizer.encode(text)
        for token, (start, end) in zip(encoded.tokens, encoded.offsets, strict=True):
            if token == UNKNOWN:
                remedy = "give that word in tokenizer_texts, or set exact_text to True"
                yield f"the tokenizer does not know {short(text[start:end])} of {short(text)}; {remedy}"
        if read(decoded := tokenizer.decode(encoded.ids)) != read(text):
            remedy = "set exact_text to True, or let parse read both"
            yield f"{short(text)} comes back from its tokens as {short(decoded)}, read as another reply; {remedy}"

    if isinstance(env, Judged):
        judge = env.judge_prompt(subject.config)
        for reply in judge.replies() or (judge.render(1, ""), judge.render(-1, "")):
            yield from lost(reply, judge.parse)
    prompt = env.policy_prompt(subject.config)
    for task in subject.tasks:
        for _, _, commands, action, _ in subject.steps(task):
            replies = {one: prompt.render(one, commands) for one in commands or (action,)}
            for text in replies.values():
                yield from lost(text, partial(prompt.parse, commands=commands))
            if len({tuple(tokenizer.encode(text).ids) for text in replies.values()}) < len(replies):
                yield f"two of the commands {short(commands)} have the same tokens; set exact_text to True"


def _proposals(subject: Subject, env: Adapts, task: Task) -> list[str]:
    """Edits of both directions."""
    propose = partial(env.propose, task, seed=subject.seed, count=COUNT)
    return [edit for direction in Direction for edit in propose(direction=direction.value)]


def _children(subject: Subject, env: Adapts, refused: list[str]) -> Iterator[tuple[Task, str, Task]]:
    """(task, edit, child) of the proposed edits. `refused` gets the reasons why others were refused."""
    for task in subject.tasks:
        for edit in _proposals(subject, env, task):
            try:
                with doing(f"the edit was {short(edit)}"):
                    yield task, edit, env.apply(task, edit, root=task, taken=set(), created=CREATED)
            except RejectedEdit as rejected:
                refused.append(f"the last was {short(edit)}, refused because of {short(str(rejected))}")


@_check(Adapts)
def _edits_have_known_fields(subject: Subject, env: Adapts) -> Iterator[str]:
    """Proposed edits are JSON objects with fields of edit_fields, and equal arguments give equal edits"""
    if not isinstance(env.edit_fields, frozenset) or not env.edit_fields:
        yield f"edit_fields is {short(env.edit_fields)}; it must be a frozenset of names"
    for task in subject.tasks:
        edits = _proposals(subject, env, task)
        yield from not_repeated("propose", partial(_proposals, subject, env, task), edits)
        if len(edits) > COUNT * len(Direction):
            yield f"propose gives more edits than the {COUNT} that are asked for"
        for edit in edits:
            values = None
            with suppress(TypeError, ValueError):
                values = json.loads(edit)
            if not isinstance(values, dict):
                yield f"propose gives {short(edit)}; an edit is the text of a JSON object"
            elif unknown := values.keys() - env.edit_fields:
                yield f"propose gives an edit with {short(sorted(unknown))}; add that to edit_fields, or leave it out"


@_check(Adapts)
def _children_are_pending(subject: Subject, env: Adapts) -> Iterator[str]:
    """Some edit makes a task; it is pending, names its parent, keeps slot, split and scene, and can be played"""
    refused, child = ["propose gives none"], None
    for task, edit, child in _children(subject, env, refused):
        wanted = {name: getattr(task, name) for name in ("env", "slot", "split", "scene")}
        wanted |= {"status": Status.PENDING.value, "parent_id": task.task_id, "depth": task.depth + 1}
        for complaint in invalid_task(child, **wanted, created=CREATED):
            yield f"a changed task: {complaint}; the edit was {short(edit)}"
        if child.task_id == task.task_id or child.payload == task.payload:
            yield f"the edit {short(edit)} gives a task of the same id or payload; raise RejectedEdit"
        if not isinstance(child.edit, str):
            yield f"edit of a changed task is {short(child.edit)}; keep the edit that made it"
        with subject.trial(child) as game:
            game.reset()
    if child is None:
        yield f"of what propose gives for these tasks, apply accepts nothing ({refused[-1]}); no task can ever change"


@_check(Adapts)
def _edits_are_deterministic(subject: Subject, env: Adapts) -> Iterator[str]:
    """Equal edits give equal tasks, equal tasks are alike, and a task that exists already is refused"""
    for task, edit, child in _children(subject, env, []):
        apply = partial(env.apply, task, edit, root=task, created=CREATED)
        yield from not_repeated(f"apply of {short(edit)}", partial(apply, taken=set()), child)
        alike, again = env.likeness(child), env.likeness(child)
        if alike != again or not isinstance(alike, str):
            yield f"likeness is {short(alike)} and then {short(again)}; return a text of the content"
        if alike == env.likeness(task):
            yield f"the edit {short(edit)} gives a task that is like its parent (likeness); raise RejectedEdit"
        for what, taken in (("id", child.task_id), ("likeness", alike)):
            try:
                apply(taken={taken})
            except RejectedEdit:
                continue
            yield f"apply made a task whose {what} is in `taken` of the edit {short(edit)}; raise RejectedEdit"


@_check(Adapts)
def _hostile_edits_are_refused(subject: Subject, env: Adapts) -> Iterator[str]:
    """Hostile edits raise RejectedEdit"""
    task = subject.tasks[0]
    for what, edit in hostile_edits(env.edit_fields).items():
        did = "made a task"
        try:
            env.apply(task, edit, root=task, taken=set(), created=CREATED)
        except RejectedEdit:
            continue
        except Exception as error:  # an environment may raise anything, and finding that out is the purpose
            did = f"raised {error_line(error, subject.env)}"
        yield f"an edit that is {what} ({short(edit)}) {did}; raise RejectedEdit"


@_check(Adapts)
def _course_counts(subject: Subject, env: Adapts) -> Iterator[str]:
    """course reads rows of trajectories"""
    for task in subject.tasks:
        rows = list[dict[str, Any]]()
        for played in subject.episodes(task):
            last, pairs = played.seen[-1], zip(played.seen, played.actions, strict=False)
            steps = [{"observation": seen.text, "action": action} for seen, action in pairs]
            rows.append({"outcome": 1 if last.won else -1, "steps": steps, "final_observation": last.text})
        for given in ([], rows):
            course = env.course(task, given)
            if not isinstance(course, protocols.Course) or not 0 <= course.won <= course.episodes <= len(given):
                yield f"course of {len(given)} episodes is {short(course)}; return rla.envs.protocols.Course of them"
            course.told()


@_check(protocols.AsksModel)
def _proposal_prompts_are_messages(subject: Subject, env: protocols.AsksModel) -> Iterator[str]:
    """The proposer's prompts are messages, with a JSON Schema of the answer"""
    prompt = env.proposal_prompt()
    for task in subject.tasks:
        for direction in Direction:
            view = protocols.ProposalView(direction=direction.value, accuracy=0.5, critique="</s> <|im_end|> NUL \x00")
            yield from invalid_messages(prompt.messages(task, view), of="proposal_prompt.messages")
        schema = prompt.schema(task)
        if json.loads(json.dumps(schema)) != schema or schema.get("type") != "object":
            yield f"proposal_prompt.schema gives {short(schema)}; return a JSON Schema of an object"
