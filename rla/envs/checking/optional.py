"""Checks of the optional protocols, but for `Judged`.

`Imports` and `Exports` are not called, because they need files; `Probes` and `Proves` are not, because they take long.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rla.envs.checking.findings import Recorded, Subject, doing, hostile_edits, other_luck, raised, short
from rla.envs.checking.prompts import wrong_messages
from rla.envs.checking.required import drawn, played_of, trial, wrong_texts
from rla.envs.observation import EnvironmentFailure, offered, settled
from rla.envs.plain_texts import tokenizer_texts
from rla.envs.protocols import (
    Adapts,
    AsksModel,
    Demonstrates,
    HasExpert,
    Judged,
    Labels,
    Pooled,
    Shares,
    Spreads,
    Teaches,
    Vocabulary,
)
from rla.envs.views import Course, Demonstration, Labelled, ProposalView, RejectedEdit
from rla.models.init import UNKNOWN, word_tokenizer
from rla.store.records import Direction, Status, Task

OTHERS = 2


def demonstrations_are_deterministic(subject: Subject) -> Iterator[str]:
    """Equal arguments give equal demonstrations"""
    assert isinstance(subject.env, Demonstrates)
    for task in subject.tasks:
        for share in (0.0, 0.5):
            first = subject.env.demonstrate(task, subject.config, seed=subject.seed, random_share=share)
            with other_luck(3):
                again = subject.env.demonstrate(task, subject.config, seed=subject.seed, random_share=share)
            if first != again:
                yield "demonstrate gave another episode when it was called again; draw from random.Random(seed) alone"


def demonstrations_can_be_played(subject: Subject) -> Iterator[str]:
    """The actions of demonstrations can be played, and are among the commands that they name"""
    assert isinstance(subject.env, Demonstrates)
    for task in subject.tasks:
        for share in (0.0, 0.5):
            shown = subject.env.demonstrate(task, subject.config, seed=subject.seed, random_share=share)
            yield from unplayable(subject, task, shown, of="demonstrate")


def unplayable(subject: Subject, task: Task, shown: Demonstration, *, of: str) -> Iterator[str]:
    """Complaints about an episode that the environment does not play as it is told."""
    sizes = {len(shown.observations), len(shown.commands), len(shown.actions)}
    if len(sizes) > 1 or not shown.actions:
        yield f"{of} gives {sorted(sizes)} observations, commands and actions; give one of each per step"
        return
    with trial(subject, task) as game:
        seen = game.reset()
        for number, (text, commands, action) in enumerate(
            zip(shown.observations, shown.commands, shown.actions, strict=True)
        ):
            if commands and action not in commands:
                yield f"step {number} of {of} takes {short(action)}, which its commands do not hold; leave it out"
            if seen.text != text:
                yield f"step {number} of {of} shows {short(text)}, but the episode shows {short(seen.text)}"
            try:
                seen = game.step(action)
            except EnvironmentFailure as failure:
                yield f"step {number} of {of}, {short(action)}, raised EnvironmentFailure: {short(str(failure))}"
                return


def expert_can_be_played(subject: Subject) -> Iterator[str]:
    """The expert's episodes are deterministic and can be played"""
    assert isinstance(subject.env, HasExpert)
    for task in subject.tasks:
        shown = subject.env.play_expert(task, subject.config, seed=subject.seed)
        with other_luck(4):
            again = subject.env.play_expert(task, subject.config, seed=subject.seed)
        if shown != again:
            yield "play_expert gave another episode when it was called again; draw from random.Random(seed) alone"
        yield from unplayable(subject, task, shown, of="play_expert")


def labels_fit_the_actions(subject: Subject) -> Iterator[str]:
    """There are labels for each action, and they show what the episode shows"""
    assert isinstance(subject.env, Labels)
    known = False
    for task in subject.tasks:
        played = played_of(subject, task)[0]
        for others in (0, OTHERS):
            labels = subject.env.label(task, subject.config, played.actions, others=others, seed=subject.seed)
            if not labels:
                continue
            known = True
            if len(labels) != len(played.actions):
                yield f"label gives {len(labels)} steps for {len(played.actions)} actions; give one for each"
                return
            steps = zip(labels, played.actions, played.seen, played.seen[1:], strict=False)
            for number, (step, action, before, after) in enumerate(steps):
                commands = offered(before.commands, subject.config.env.omit_commands)
                yield from wrong_labels(step, action, commands, after.text, others=others, number=number)
    if not known:
        yield "label gives nothing for any of these tasks, so no judge of theirs can be measured; check others"


def wrong_labels(
    step: list[Labelled], action: str, commands: tuple[str, ...], answer: str, *, others: int, number: int
) -> Iterator[str]:
    """Complaints about the labels of one step."""
    if not step or step[0].action != action:
        yield f"the first label of step {number} is not of the action taken, {short(action)}"
        return
    if step[0].next_observation != answer:
        told = short(step[0].next_observation)
        yield f"label says that {short(action)} led to {told}, but the episode showed {short(answer)}"
    if len(step) > 1 + others:
        yield f"step {number} has {len(step) - 1} other actions, and {others} were asked for at most"
    for one in step[1:]:
        if commands and one.action not in commands:  # without commands actions are free text
            yield f"step {number} labels {short(one.action)}, which was not offered"
    for one in step:
        if one.score not in (1, -1):
            yield f"a label of step {number} has the score {short(one.score)}; it must be 1 or -1"


def lessons_are_messages(subject: Subject) -> Iterator[str]:
    """Lessons are messages with replies, and equal arguments give equal lessons"""
    assert isinstance(subject.env, Teaches)
    for task in subject.tasks:
        lesson = subject.env.lesson(task, subject.config, seed=subject.seed)
        yield from wrong_messages(lesson.messages, of="lesson")
        if not lesson.replies or not all(isinstance(reply, str) for reply in lesson.replies):
            yield f"the replies of a lesson are {short(lesson.replies)}; give one text or more"
        with other_luck(5):
            if subject.env.lesson(task, subject.config, seed=subject.seed) != lesson:
                yield "lesson gave another one when it was called again; draw from random.Random(seed) alone"


def vocabulary_is_text(subject: Subject) -> Iterator[str]:
    """Texts and phrases for a tokenizer are texts, and what is written comes back from its tokens"""
    assert isinstance(subject.env, Vocabulary)
    if type(subject.env.exact_text) is not bool:
        yield f"exact_text is {short(subject.env.exact_text)}; it must be True or False"
    for name, texts in (
        ("tokenizer_texts", subject.env.tokenizer_texts(list(subject.tasks), subject.config)),
        ("tokenizer_phrases", subject.env.tokenizer_phrases(subject.config)),
    ):
        for text in texts:
            if not isinstance(text, str):
                yield f"{name} gives {short(text)}; it must give texts"
    if not subject.env.exact_text:  # an exact tokenizer knows every text
        yield from lost_words(subject)


def lost_words(subject: Subject) -> Iterator[str]:
    """Complaints about replies of the judge and actions of the policy that a word-level tokenizer does not give back.

    It is the one that `init-model` makes of the training tasks. The actions are those of the episodes that were played.
    """
    found = tokenizer_texts(subject.env, drawn(subject, False), subject.config)
    tokenizer = word_tokenizer(found.texts, phrases=found.phrases, written=found.written)

    def lost(text: str, read: Callable[[str], Any]) -> Iterator[str]:
        encoded = tokenizer.encode(text)
        for token, (start, end) in zip(encoded.tokens, encoded.offsets, strict=True):
            if token == UNKNOWN:
                yield (
                    f"the tokenizer does not know {short(text[start:end])} of {short(text)}; give that word in "
                    "tokenizer_texts, or set exact_text to True"
                )
        if read(told := tokenizer.decode(encoded.ids)) != read(text):
            yield (
                f"{short(text)} comes back from its tokens as {short(told)}, which is read as another reply; set "
                "exact_text to True, or let parse read both"
            )

    if isinstance(subject.env, Judged):
        judge = subject.env.judge_prompt(subject.config)
        for reply in judge.replies() or (judge.render(1, ""), judge.render(-1, "")):
            yield from lost(reply, judge.parse)
    prompt = subject.env.policy_prompt(subject.config)
    for task in subject.tasks:
        played = played_of(subject, task)[-1]
        for seen, action in zip(played.seen, played.actions, strict=False):
            commands = offered(seen.commands, subject.config.env.omit_commands)
            told = {action: prompt.render(action, commands) for action in commands or (action,)}
            for text in told.values():
                yield from lost(text, partial(prompt.parse, commands=commands))
            if len({tuple(tokenizer.encode(text).ids) for text in told.values()}) < len(told):
                yield f"two of the commands {short(commands)} have the same tokens; set exact_text to True"


def service_plays(subject: Subject) -> Iterator[str]:
    """The service plays an episode, and closes"""
    assert isinstance(subject.env, Shares)
    env, task = subject.env, subject.tasks[0]
    actions = played_of(subject, task)[-1].actions

    async def play() -> list[str]:
        service = env.service(subject.config)
        try:
            game = service.make(task)
            seen = [await settled(game.reset())]
            seen.append(await settled(game.step(actions[0])))
            game.close()
        finally:
            await service.close()
        return [observation.text for observation in seen]

    with trial(subject, task) as game:
        alone = [game.reset().text, game.step(actions[0]).text]
    shared = asyncio.run(play())
    if shared != alone:
        yield f"an episode of the service shows {short(shared)}, and one of make shows {short(alone)}"


def spreading_is_answered(subject: Subject) -> Iterator[str]:
    """spreads says yes or no"""
    assert isinstance(subject.env, Spreads)
    if type(spreads := subject.env.spreads(subject.config)) is not bool:
        yield f"spreads gives {short(spreads)}; it must be True or False"


def pool_is_asked_for(subject: Subject) -> Iterator[str]:
    """slow says yes or no, and warm can be called"""
    assert isinstance(subject.env, Pooled)
    if type(slow := subject.env.slow(subject.config)) is not bool:
        yield f"slow gives {short(slow)}; it must be True or False"
    subject.env.warm(subject.config)


COUNT = 4
CREATED = 3


def adapting(subject: Subject) -> Adapts:
    assert isinstance(subject.env, Adapts)
    return subject.env


def proposals(subject: Subject, task: Task) -> Iterator[str]:
    """Edits of both directions."""
    for direction in Direction:
        with doing(f"in propose of {direction.value} edits of the task {short(task.instruction)}"):
            edits = adapting(subject).propose(
                task, direction=direction.value, critique="", seed=subject.seed, count=COUNT
            )
        yield from edits


def children(subject: Subject) -> Iterator[tuple[Task, str, Task]]:
    """(task, edit, child) of the proposed edits that are accepted."""
    for task in subject.tasks:
        for edit in proposals(subject, task):
            try:
                with doing(f"the edit was {short(edit)}"):
                    child = adapting(subject).apply(task, edit, root=task, taken=set(), created=CREATED)
            except RejectedEdit:
                continue
            yield task, edit, child


def edits_have_known_fields(subject: Subject) -> Iterator[str]:
    """Proposed edits are JSON objects with fields of edit_fields, and equal arguments give equal edits"""
    fields = adapting(subject).edit_fields
    if not isinstance(fields, frozenset) or not fields:
        yield f"edit_fields is {short(fields)}; it must be a frozenset of names"
        return
    for task in subject.tasks:
        edits = list(proposals(subject, task))
        with other_luck(6):
            if list(proposals(subject, task)) != edits:
                yield "propose gave other edits when it was called again; draw from random.Random(seed) alone"
        if len(edits) > COUNT * len(Direction):
            yield f"propose gives more edits than the {COUNT} that are asked for"
        for edit in edits:
            yield from unknown_fields(edit, fields)


def unknown_fields(edit: Any, fields: frozenset[str]) -> Iterator[str]:
    """Complaints about a proposed edit."""
    try:
        values = json.loads(edit)
    except (TypeError, ValueError):
        values = None
    if not isinstance(values, dict):
        yield f"propose gives {short(edit)}; an edit is the text of a JSON object"
    elif unknown := values.keys() - fields:
        yield f"propose gives an edit with {short(sorted(unknown))}; add that to edit_fields, or leave it out"


def some_edit_is_accepted(subject: Subject) -> Iterator[str]:
    """Some proposed edit makes a task"""
    if next(children(subject), None) is not None:
        return
    refused = "propose gives none"
    for task in subject.tasks:
        for edit in proposals(subject, task):
            try:
                adapting(subject).apply(task, edit, root=task, taken=set(), created=CREATED)
            except RejectedEdit as error:
                refused = f"the last was {short(edit)}, refused because of {short(str(error))}"
    yield f"of what propose gives for these tasks, apply accepts nothing ({refused}); no task can ever change"


def children_are_pending(subject: Subject) -> Iterator[str]:
    """A changed task is pending, names its parent, keeps slot, split and scene, and can be played"""
    for task, edit, child in children(subject):
        yield from (f"{complaint}; the edit was {short(edit)}" for complaint in wrong_texts(child))
        wanted: dict[str, Any] = {name: getattr(task, name) for name in ("env", "slot", "split", "scene")}
        wanted |= {"status": Status.PENDING.value, "parent_id": task.task_id}
        wanted |= {"depth": task.depth + 1, "created": CREATED}
        for column, value in wanted.items():
            if getattr(child, column) != value:
                found = short(getattr(child, column))
                yield f"{column} of a changed task is {found}; it must be {short(value)}; the edit was {short(edit)}"
        if child.task_id == task.task_id or child.payload == task.payload:
            yield f"the edit {short(edit)} gives a task of the same id or payload; raise RejectedEdit"
        if not isinstance(child.edit, str):
            yield f"edit of a changed task is {short(child.edit)}; keep the edit that made it"
        with doing(f"the edit was {short(edit)}"), trial(subject, child) as game:
            game.reset()


def edits_are_deterministic(subject: Subject) -> Iterator[str]:
    """Equal edits give equal tasks, equal tasks are alike, and a task that exists already is refused"""
    env = adapting(subject)
    for task, edit, child in children(subject):
        with other_luck(7):
            if env.apply(task, edit, root=task, taken=set(), created=CREATED) != child:
                yield f"apply gave another task the second time, of the edit {short(edit)}; draw by the edit alone"
            with doing(f"the edit was {short(edit)}"):
                alike, again = env.likeness(child), env.likeness(child)
            if alike != again or not isinstance(alike, str):
                yield f"likeness is {short(alike)} and then another; return a text of the content"
        if env.likeness(child) == env.likeness(task):
            yield f"the edit {short(edit)} gives a task that is like its parent (likeness); raise RejectedEdit"
        for what, taken in (("id", child.task_id), ("likeness", env.likeness(child))):
            try:
                env.apply(task, edit, root=task, taken={taken}, created=CREATED)
            except RejectedEdit:
                continue
            yield f"apply made a task whose {what} is in `taken` of the edit {short(edit)}; raise RejectedEdit"


def hostile_edits_are_refused(subject: Subject) -> Iterator[str]:
    """Hostile edits raise RejectedEdit"""
    env = adapting(subject)
    task = subject.tasks[0]
    for what, edit in hostile_edits(env.edit_fields).items():
        try:
            env.apply(task, edit, root=task, taken=set(), created=CREATED)
        except RejectedEdit:
            continue
        except Exception as error:  # an environment may raise anything, and to find that out is what this is for
            yield f"an edit that is {what} ({short(edit)}) raised {raised(error, subject.env)}; raise RejectedEdit"
            return
        yield f"an edit that is {what} ({short(edit)}) made a task; raise RejectedEdit"


def course_counts(subject: Subject) -> Iterator[str]:
    """course reads rows of trajectories"""
    for task in subject.tasks:
        rows = [row_of(played) for played in played_of(subject, task)]
        for told in ([], rows):
            course = adapting(subject).course(task, told)
            if not isinstance(course, Course) or not 0 <= course.won <= course.episodes <= len(told):
                yield f"course of {len(told)} episodes is {short(course)}; return rla.envs.views.Course of them"
            course.told()


def row_of(played: Recorded) -> dict[str, Any]:
    """What a course sees of an episode."""
    return {
        "outcome": 1 if played.seen[-1].won else -1,
        "steps": [{"observation": o.text, "action": a} for o, a in zip(played.seen, played.actions, strict=False)],
        "final_observation": played.seen[-1].text,
    }


def model_is_asked_for_edits(subject: Subject) -> Iterator[str]:
    """The proposer's prompts are messages, with a JSON Schema of the answer"""
    assert isinstance(subject.env, AsksModel)
    prompt = subject.env.proposal_prompt()
    for task in subject.tasks:
        for direction in Direction:
            view = ProposalView(direction=direction.value, accuracy=0.5, critique="</s> <|im_end|> NUL \x00")
            yield from wrong_messages(prompt.messages(task, view), of="proposal_prompt.messages")
        schema = prompt.schema(task)
        if json.loads(json.dumps(schema)) != schema or schema.get("type") != "object":
            yield f"proposal_prompt.schema gives {short(schema)}; return a JSON Schema of an object"


ADAPTS = (
    edits_have_known_fields,
    some_edit_is_accepted,
    children_are_pending,
    edits_are_deterministic,
    hostile_edits_are_refused,
    course_counts,
)
