"""Hostile edits of tasks, as a proposer may write them, and hostile replies of policy, judge and critic.

An edit is refused with a reason or makes a task in which every name is the scene's own. A reply is read or not read:
no exception, no control token, no action that was not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from rla.envs.protocols import RejectedEdit
from rla.store.records import Task
from tests.attack.areas import Needs, Numbered, Try, dice
from tests.attack.hostile import changed, loose_json, text
from tests.attack.inputs import answered_within, within_memory
from tests.attack.known import Reading, known_names, readers
from tests.attack.small_run import World

if TYPE_CHECKING:
    from rla.llm.chat import ChatFormat

SECONDS = 10.0  # of one edit or reply, on a busy machine
ALFWORLD_EDITS: tuple[dict[str, Any], ...] = (
    {"goal": {"kind": "pick_and_place_simple", "object_type": "Mug", "target_type": "CounterTop"}},
    {"move": [{"object": "mug 1", "to": "countertop 1"}], "hint": "where"},
    {"add": [{"object_type": "Apple", "to": "countertop 1", "count": 1}], "note": "x"},
    {"remove": [{"object": "mug 1"}], "hint": "where_and_how"},
)
REPLIES = (
    "take mug 1 from desk 1",
    "Action: look",
    "<think>hm</think>\n<action>go to desk 1</action>",
    "```python\nprint(input())\n```",
    "Score: +1 because",
    "<score>-1</score>",
    "\\boxed{1}",
    '{"score": 1, "reason": "x"}',
    "**Test Input:**\n```\n1\n```\n**Test Output:**\n```\n2\n```",
    "Input:\n1\nOutput:\n2",
)


def edit_trial(
    world: World,
    area: str,
    task: Task,
    sound: Sequence[dict[str, Any]],
    check: Callable[[Task], None] = lambda child: None,
) -> Try:
    """A trial applies one of the `sound` edits, changed by lot. `check` raises AssertionError for a child that must not
    be.
    """
    from rla.envs.registry import environment

    applying: Any = environment(task.env)
    within_memory()

    def tried(trial: str) -> str | None:
        lots = dice(world, f"{area}/{trial}")
        edit = (
            text(lots)
            if lots.random() < 0.1
            else loose_json(changed(lots.choice(sound), lots, times=lots.choice((0, 1, 2, 4))), lots)
        )
        try:
            with answered_within(SECONDS):
                child = applying.apply(task, edit, root=task, taken={task.task_id}, created=1)
        except RejectedEdit as refused:
            return None if str(refused) else "refused without a reason"
        if not isinstance(child, Task):
            return f"no task: {child!r:.80}"
        check(child)
        return None

    return tried


def reply_trial(world: World, area: str, readers: Callable[[ChatFormat], dict[str, Reading]]) -> Try:
    """A trial gives one text to each of the readers."""
    from rla.llm.chat import ChatFormat
    from rla.models.load import load_tokenizer

    tokenizer = load_tokenizer(world.complete / "r/init/policy")
    chat = ChatFormat(tokenizer)
    control = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    readings = readers(chat)
    within_memory()

    def tried(trial: str) -> str | None:
        reply = hostile_reply(dice(world, f"{area}/{trial}"))
        try:
            ids = chat.encode(reply)
        except (UnicodeEncodeError, TypeError):  # half a surrogate pair: no model says that
            return None
        if control & set(ids):
            return "a control token came out of plain text"
        for name, read in readings.items():
            with answered_within(SECONDS):
                wrong = read(reply, [*ids, chat.end_id])
            if wrong:
                return f"{name}: {wrong}"
        return None

    return tried


@dataclass(frozen=True, slots=True)
class Edits(Numbered):
    """Edits of an ALFWorld task."""

    name: str = "edits"
    together: int = 200

    def opened(self, world: World, scratch: Path) -> Try:
        task, assert_known = known_names()
        return edit_trial(world, self.name, task, ALFWORLD_EDITS, assert_known)


@dataclass(frozen=True, slots=True)
class Replies(Numbered):
    """Texts that every reader of replies gets."""

    name: str = "replies"
    together: int = 200
    needs: Needs = Needs.RUN

    def opened(self, world: World, scratch: Path) -> Try:
        return reply_trial(world, self.name, readers)


def hostile_reply(lots: Random) -> str:
    """What a model may say: nearly right, nested, endless, or aimed at who reads it."""
    parts = [lots.choice((lots.choice(REPLIES), text(lots)[:20_000])) for _ in range(lots.randrange(1, 4))]
    made = lots.choice(("", "\n", " ")).join(parts)
    kind = lots.randrange(6)
    if kind == 0:
        return made[: lots.randrange(len(made) + 1)]
    if kind == 1:
        return made * lots.choice((2, 50))
    if kind == 2:
        return lots.choice(("<think>", "</think>", "```", "\\boxed{", "<action>")) * lots.choice((1, 500)) + made
    return made
