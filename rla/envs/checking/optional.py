"""Checks of the optional protocols. `CHECKS` names those of each protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rla.envs.checking.required import invalid_messages, invalid_task, misread, steps_of
from rla.envs.checking.subject import (
    HOSTILE,
    Check,
    Subject,
    doing,
    error_line,
    hostile_edits,
    not_repeated,
    short,
)
from rla.envs.observation import EnvironmentFailure, settled
from rla.envs.protocols import (
    Adapts,
    AsksModel,
    Demonstrates,
    HasExpert,
    Judged,
    Labels,
    Shares,
    Teaches,
    Vocabulary,
)
from rla.envs.views import Course, Demonstration, JudgeView, Labelled, ProposalView, RejectedEdit
from rla.envs.vocabulary import tokenizer_texts
from rla.models.init import UNKNOWN, word_tokenizer
from rla.store.records import Direction, Status, Task

OTHERS = 2  # labels of other commands that are asked for
COUNT = 4  # edits that are asked for
CREATED = 3


def _judge_prompts_are_messages(subject: Subject) -> Iterator[str]:
    """The judge's prompts are messages"""
    assert isinstance(subject.env, Judged)
    prompt, policy = subject.env.judge_prompt(subject.config), subject.env.policy_prompt(subject.config)
    for task in subject.tasks:
        for history, seen, commands, action, following in steps_of(subject, task):
            said = policy.render(action, commands) if not commands or action in commands else action
            hostile = [] if history else [(False, HOSTILE["tokens that end a turn"])]
            for valid, reply in [(True, said), *hostile]:
                view = JudgeView(
                    instruction=task.instruction,
                    history=history,
                    observation=seen.text,
                    commands=commands,
                    reply=reply,
                    action=action if valid else "no action",
                    valid=valid,
                    next_observation=following.text,
                )
                with doing(f"of the reply {short(reply)} to {short(seen.text)}"):
                    messages = prompt.messages(view)
                yield from invalid_messages(messages, of="judge_prompt.messages")


def _judge_parses_what_it_renders(subject: Subject) -> Iterator[str]:
    """The judge's render and parse are inverse, and its replies all parse"""
    assert isinstance(subject.env, Judged)
    prompt = subject.env.judge_prompt(subject.config)
    for score in (1, -1):
        for reason in ("", "it makes progress"):
            read = prompt.parse(prompt.render(score, reason))
            if read != score:
                yield f"parse(render({score}, {reason!r})) is {short(read)}; render must write what parse reads"
    replies = prompt.replies()
    if not isinstance(replies, tuple):
        yield f"judge_prompt.replies gives {short(replies)}; return a tuple of texts"
        return
    scores = {prompt.parse(reply): reply for reply in replies}
    for read, reply in scores.items():
        if read not in (1, -1):
            yield f"{short(reply)} of judge_prompt.replies is read as {short(read)}, not as 1 or -1"
    if replies and scores.keys() != {1, -1}:
        yield "judge_prompt.replies has no reply for one of the scores 1 and -1"
    if not replies and subject.config.judge.decoding == "admissible":
        yield "judge.decoding is admissible, and judge_prompt.replies is empty; name all replies that may be said"


def _hostile_judgements_are_parsed(subject: Subject) -> Iterator[str]:
    """Hostile judgements are parsed as 1, -1 or None"""
    assert isinstance(subject.env, Judged)
    parse = subject.env.judge_prompt(subject.config).parse
    return misread(subject, parse, lambda read: read in (1, -1), of="judge_prompt.parse", wanted="1 or -1")


def _reasons_are_replies(subject: Subject) -> Iterator[str]:
    """The reasons of labels are among the judge's replies"""
    assert isinstance(subject.env, Judged)
    env = subject.env
    prompt = env.judge_prompt(subject.config)
    replies = prompt.replies()
    if not isinstance(env, Labels) or not replies:
        return
    for task in subject.tasks:
        for step in env.label(task, subject.config, subject.episodes(task)[0].actions):
            for one in step:
                if (taught := prompt.render(one.score, one.reason)) not in replies:
                    yield f"a label teaches {short(taught)}, which judge_prompt.replies lacks; add its reason there"


def _demonstrations_can_be_played(subject: Subject) -> Iterator[str]:
    """Demonstrations are deterministic, and can be played with the commands that they name"""
    assert isinstance(subject.env, Demonstrates)
    for task in subject.tasks:
        for share in (0.0, 0.5):
            call = partial(subject.env.demonstrate, task, subject.config, seed=subject.seed, random_share=share)
            yield from _unplayable(subject, task, call, of="demonstrate")


def _expert_can_be_played(subject: Subject) -> Iterator[str]:
    """The expert's episodes are deterministic, and can be played with the commands that they name"""
    assert isinstance(subject.env, HasExpert)
    for task in subject.tasks:
        call = partial(subject.env.play_expert, task, subject.config, seed=subject.seed)
        yield from _unplayable(subject, task, call, of="play_expert")


def _unplayable(subject: Subject, task: Task, call: Callable[[], Demonstration], *, of: str) -> Iterator[str]:
    """Complaints about a demonstration that differs from the episode of its actions."""
    shown = call()
    yield from not_repeated(of, call, shown)
    sizes = {len(shown.observations), len(shown.commands), len(shown.actions)}
    if len(sizes) > 1 or not shown.actions:
        yield f"{of} gives {sorted(sizes)} observations, commands and actions; give one of each per step"
        return
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
                return


def _labels_fit_the_actions(subject: Subject) -> Iterator[str]:
    """There are labels for each action, and they show the observations of the episode"""
    assert isinstance(subject.env, Labels)
    known = False
    for task in subject.tasks:
        played = subject.episodes(task)[0]
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
                commands = subject.offered(before)
                for complaint in _invalid_labels(step, action, commands, after.text, others=others):
                    yield f"step {number}: {complaint}"
    if not known:
        yield "label gives nothing for any of these tasks, so no judge of theirs can be measured; check others"


def _invalid_labels(
    step: list[Labelled], action: str, commands: tuple[str, ...], answer: str, *, others: int
) -> Iterator[str]:
    if not step or step[0].action != action:
        yield f"the first label is not of the action taken, {short(action)}"
        return
    if step[0].next_observation != answer:
        said = short(step[0].next_observation)
        yield f"label says that {short(action)} led to {said}, but the episode showed {short(answer)}"
    if len(step) > 1 + others:
        yield f"there are labels of {len(step) - 1} other actions, and {others} were asked for at most"
    for one in step:
        if one is not step[0] and commands and one.action not in commands:  # without commands actions are free text
            yield f"there is a label of {short(one.action)}, which was not offered"
        if one.score not in (1, -1):
            yield f"a label has the score {short(one.score)}; it must be 1 or -1"


def _lessons_are_messages(subject: Subject) -> Iterator[str]:
    """Lessons are messages with replies, and equal arguments give equal lessons"""
    assert isinstance(subject.env, Teaches)
    for task in subject.tasks:
        call = partial(subject.env.lesson, task, subject.config, seed=subject.seed)
        lesson = call()
        yield from invalid_messages(lesson.messages, of="lesson")
        if not lesson.replies or not all(isinstance(reply, str) for reply in lesson.replies):
            yield f"the replies of a lesson are {short(lesson.replies)}; give one text or more"
        yield from not_repeated("lesson", call, lesson)


def _vocabulary_is_complete(subject: Subject) -> Iterator[str]:
    """Texts and phrases for a tokenizer are texts, and replies survive encoding and decoding"""
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
        yield from _lost_words(subject)


def _lost_words(subject: Subject) -> Iterator[str]:
    """Complaints about replies that the word-level tokenizer of `init-model` does not preserve."""
    found = tokenizer_texts(subject.env, subject.drawn(held_out=False), subject.config)
    tokenizer = word_tokenizer(found.texts, phrases=found.phrases, written=found.written)

    def lost(text: str, read: Callable[[str], Any]) -> Iterator[str]:
        encoded = tokenizer.encode(text)
        for token, (start, end) in zip(encoded.tokens, encoded.offsets, strict=True):
            if token == UNKNOWN:
                yield (
                    f"the tokenizer does not know {short(text[start:end])} of {short(text)}; give that word in "
                    "tokenizer_texts, or set exact_text to True"
                )
        if read(decoded := tokenizer.decode(encoded.ids)) != read(text):
            yield (
                f"{short(text)} comes back from its tokens as {short(decoded)}, which is read as another reply; set "
                "exact_text to True, or let parse read both"
            )

    if isinstance(subject.env, Judged):
        judge = subject.env.judge_prompt(subject.config)
        for reply in judge.replies() or (judge.render(1, ""), judge.render(-1, "")):
            yield from lost(reply, judge.parse)
    prompt = subject.env.policy_prompt(subject.config)
    for task in subject.tasks:
        for _, _, commands, action, _ in steps_of(subject, task):
            replies = {one: prompt.render(one, commands) for one in commands or (action,)}
            for text in replies.values():
                yield from lost(text, partial(prompt.parse, commands=commands))
            if len({tuple(tokenizer.encode(text).ids) for text in replies.values()}) < len(replies):
                yield f"two of the commands {short(commands)} have the same tokens; set exact_text to True"


def _service_plays(subject: Subject) -> Iterator[str]:
    """The service plays an episode, and closes"""
    assert isinstance(subject.env, Shares)
    env, task = subject.env, subject.tasks[0]
    actions = subject.episodes(task)[-1].actions

    async def play() -> list[str]:
        service = env.service(subject.config)
        try:
            game = service.make(task)
            seen = [await settled(game.reset()), await settled(game.step(actions[0]))]
            game.close()
        finally:
            await service.close()
        return [observation.text for observation in seen]

    with subject.trial(task) as game:
        alone = [game.reset().text, game.step(actions[0]).text]
    shared = asyncio.run(play())
    if shared != alone:
        yield f"an episode of the service shows {short(shared)}, and one of make shows {short(alone)}"


def _proposals(subject: Subject, task: Task) -> list[str]:
    """Edits of both directions."""
    assert isinstance(subject.env, Adapts)
    edits: list[str] = []
    for direction in Direction:
        with doing(f"in propose of {direction.value} edits of the task {short(task.instruction)}"):
            edits += subject.env.propose(task, direction=direction.value, critique="", seed=subject.seed, count=COUNT)
    return edits


def _applied(subject: Subject) -> Iterator[tuple[Task, str, Task | RejectedEdit]]:
    """(task, edit, child or the reason why the edit is refused) of the proposed edits."""
    assert isinstance(subject.env, Adapts)
    for task in subject.tasks:
        for edit in _proposals(subject, task):
            try:
                with doing(f"the edit was {short(edit)}"):
                    yield task, edit, subject.env.apply(task, edit, root=task, taken=set(), created=CREATED)
            except RejectedEdit as rejected:
                yield task, edit, rejected


def _children(subject: Subject) -> Iterator[tuple[Task, str, Task]]:
    return ((task, edit, child) for task, edit, child in _applied(subject) if isinstance(child, Task))


def _edits_have_known_fields(subject: Subject) -> Iterator[str]:
    """Proposed edits are JSON objects with fields of edit_fields, and equal arguments give equal edits"""
    assert isinstance(subject.env, Adapts)
    allowed = subject.env.edit_fields
    if not isinstance(allowed, frozenset) or not allowed:
        yield f"edit_fields is {short(allowed)}; it must be a frozenset of names"
        return
    for task in subject.tasks:
        edits = _proposals(subject, task)
        yield from not_repeated("propose", partial(_proposals, subject, task), edits)
        if len(edits) > COUNT * len(Direction):
            yield f"propose gives more edits than the {COUNT} that are asked for"
        for edit in edits:
            try:
                values = json.loads(edit)
            except (TypeError, ValueError):
                values = None
            if not isinstance(values, dict):
                yield f"propose gives {short(edit)}; an edit is the text of a JSON object"
            elif unknown := values.keys() - allowed:
                yield f"propose gives an edit with {short(sorted(unknown))}; add that to edit_fields, or leave it out"


def _some_edit_is_accepted(subject: Subject) -> Iterator[str]:
    """Some proposed edit makes a task"""
    refused = "propose gives none"
    for _, edit, child in _applied(subject):
        if isinstance(child, Task):
            return
        refused = f"the last was {short(edit)}, refused because of {short(str(child))}"
    yield f"of what propose gives for these tasks, apply accepts nothing ({refused}); no task can ever change"


def _children_are_pending(subject: Subject) -> Iterator[str]:
    """A changed task is pending, names its parent, keeps slot, split and scene, and can be played"""
    for task, edit, child in _children(subject):
        kept = {name: getattr(task, name) for name in ("env", "slot", "split", "scene")}
        made = {"status": Status.PENDING.value, "parent_id": task.task_id, "depth": task.depth + 1, "created": CREATED}
        for complaint in invalid_task(child, **kept, **made):
            yield f"a changed task: {complaint}; the edit was {short(edit)}"
        if child.task_id == task.task_id or child.payload == task.payload:
            yield f"the edit {short(edit)} gives a task of the same id or payload; raise RejectedEdit"
        if not isinstance(child.edit, str):
            yield f"edit of a changed task is {short(child.edit)}; keep the edit that made it"
        with doing(f"the edit was {short(edit)}"), subject.trial(child) as game:
            game.reset()


def _edits_are_deterministic(subject: Subject) -> Iterator[str]:
    """Equal edits give equal tasks, equal tasks are alike, and a task that exists already is refused"""
    env = subject.env
    assert isinstance(env, Adapts)
    for task, edit, child in _children(subject):
        apply = partial(env.apply, task, edit, root=task, created=CREATED)
        yield from not_repeated(f"apply of {short(edit)}", partial(apply, taken=set()), child)
        with doing(f"the edit was {short(edit)}"):
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


def _hostile_edits_are_refused(subject: Subject) -> Iterator[str]:
    """Hostile edits raise RejectedEdit"""
    assert isinstance(subject.env, Adapts)
    task = subject.tasks[0]
    for what, edit in hostile_edits(subject.env.edit_fields).items():
        try:
            subject.env.apply(task, edit, root=task, taken=set(), created=CREATED)
        except RejectedEdit:
            continue
        except Exception as error:  # an environment may raise anything, and finding that out is the purpose
            said = error_line(error, subject.env)
            yield f"an edit that is {what} ({short(edit)}) raised {said}; raise RejectedEdit"
            return
        yield f"an edit that is {what} ({short(edit)}) made a task; raise RejectedEdit"


def _course_counts(subject: Subject) -> Iterator[str]:
    """course reads rows of trajectories"""
    assert isinstance(subject.env, Adapts)
    for task in subject.tasks:
        rows = [
            {
                "outcome": 1 if played.seen[-1].won else -1,
                "steps": [
                    {"observation": seen.text, "action": action}
                    for seen, action in zip(played.seen, played.actions, strict=False)
                ],
                "final_observation": played.seen[-1].text,
            }
            for played in subject.episodes(task)
        ]
        for given in ([], rows):
            course = subject.env.course(task, given)
            if not isinstance(course, Course) or not 0 <= course.won <= course.episodes <= len(given):
                yield f"course of {len(given)} episodes is {short(course)}; return rla.envs.views.Course of them"
                return
            course.told()


def _proposal_prompts_are_messages(subject: Subject) -> Iterator[str]:
    """The proposer's prompts are messages, with a JSON Schema of the answer"""
    assert isinstance(subject.env, AsksModel)
    prompt = subject.env.proposal_prompt()
    for task in subject.tasks:
        for direction in Direction:
            view = ProposalView(direction=direction.value, accuracy=0.5, critique="</s> <|im_end|> NUL \x00")
            yield from invalid_messages(prompt.messages(task, view), of="proposal_prompt.messages")
        schema = prompt.schema(task)
        if json.loads(json.dumps(schema)) != schema or schema.get("type") != "object":
            yield f"proposal_prompt.schema gives {short(schema)}; return a JSON Schema of an object"


CHECKS: dict[type, tuple[Check, ...]] = {
    Shares: (_service_plays,),
    Demonstrates: (_demonstrations_can_be_played,),
    HasExpert: (_expert_can_be_played,),
    Labels: (_labels_fit_the_actions,),
    Judged: (
        _judge_prompts_are_messages,
        _judge_parses_what_it_renders,
        _hostile_judgements_are_parsed,
        _reasons_are_replies,
    ),
    Teaches: (_lessons_are_messages,),
    Vocabulary: (_vocabulary_is_complete,),
    Adapts: (
        _edits_have_known_fields,
        _some_edit_is_accepted,
        _children_are_pending,
        _edits_are_deterministic,
        _hostile_edits_are_refused,
        _course_counts,
    ),
    AsksModel: (_proposal_prompts_are_messages,),
}
