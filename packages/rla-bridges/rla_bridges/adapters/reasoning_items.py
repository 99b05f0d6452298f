"""Items of reasoning-gym as tasks: sampling them for a split, making them again from a payload, scoring answers.

A payload names family, levels, values, seed and index. The text of a question decides whether it is held out, so no
question is on both sides, whatever the run's seed and whatever an edit changes. Besides, each side has its own range of
indices. An item becomes a task only if its own answer scores 1, which proves that it can be solved; four families have
no answers (`WITHOUT_ANSWER`).
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from rla.envs.authoring import root_task
from rla.envs.chat_prompts import single_spaced
from rla.errors import UserError
from rla.seeds import derive
from rla.store.records import Task, content_id
from rla_bridges.adapters.reasoning_answers import may_be_verified
from rla_bridges.adapters.reasoning_families import (
    ITEMS,
    SIZES,
    WITHOUT_ANSWER,
    NoItem,
    makes_no_item,
    opened_family,
    undisturbed,
)

NAME = "reasoning-gym"
SEEDS = 1 << 31  # seed + index must stay below 2 ** 32, NumPy's limit
SIDES = 4  # one question of this many is held out
DRY = 400  # indices in a row without a new question after which the family is exhausted
FAILURES = 8  # failures among the first indices after which the family is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """The recipe of a question."""

    family: str
    levels: Mapping[str, int]
    values: Mapping[str, Any]
    seed: int
    index: int

    def content(self) -> dict[str, Any]:
        return asdict(self)


def item_of(task: Task) -> Item:
    """The item in a task's payload. Raises UserError if the payload is not one."""
    try:
        item = Item(**json.loads(task.payload))
    except (ValueError, TypeError, RecursionError):
        item = None
    if item is None or not (
        isinstance(item.family, str)
        and isinstance(item.levels, dict)
        and isinstance(item.values, dict)
        and type(item.seed) is type(item.index) is int
    ):
        raise UserError(f"task {task.task_id}: its payload is not an item of reasoning-gym; make the tasks again")
    return item


def made_entry(item: Item) -> dict[str, Any]:
    """The package's entry: question, answer and metadata for the verifier. Raises NoItem."""
    return _entry(json.dumps(item.content(), sort_keys=True))


@lru_cache(maxsize=2048)
def _entry(content: str) -> dict[str, Any]:
    item = Item(**json.loads(content))
    items = opened_family(item.family).items(item.levels, item.values, seed=item.seed)
    with makes_no_item():
        found: dict[str, Any] = items[item.index]
    return found


def entry_of_task(task: Task) -> dict[str, Any]:
    """Raises UserError if the installed package makes another question than the task's."""
    try:
        entry = made_entry(item_of(task))
    except NoItem as reason:
        raise UserError(f"task {task.task_id}: reasoning-gym cannot make it ({reason}); make new tasks") from None
    if entry["question"] != task.instruction:
        raise UserError(
            f"task {task.task_id}: the installed reasoning-gym makes another question of it; install the version that "
            "the tasks were made with, or make new tasks"
        )
    return entry


def answer_score(item: Item, answer: str) -> float:
    """The score that the family's verifier gives `answer`, in [0, 1]."""
    entry, text = made_entry(item), answer.strip()
    if not may_be_verified(item.family, text, entry):
        return 0.0
    items = opened_family(item.family).items(item.levels, item.values, seed=item.seed)
    try:
        with undisturbed():
            reward = float(items.score_answer(text, copy.deepcopy(entry)))
    except Exception:  # a verifier that fails on a text, in any way, has not accepted it
        return 0.0
    return min(max(reward, 0.0), 1.0) if math.isfinite(reward) else 0.0


def known_answer(item: Item) -> str | None:
    """The item's own answer, if it scores 1."""
    answer = made_entry(item)["answer"]
    return answer.strip() if isinstance(answer, str) and answer_score(item, answer) == 1.0 else None


def question_likeness(family: str, question: str) -> str:
    """Equal for questions that differ only in white space and capitals."""
    return content_id(NAME, family, single_spaced(question).casefold())


def is_held_out(likeness: str) -> bool:
    """Whether a question is held out, decided by its text."""
    return int(likeness, 16) % SIDES == 0


def index_range(family: str, *, held_out: bool) -> range:
    """The indices of a side: a quarter of them are held out."""
    size = SIZES.get(family, ITEMS)
    return range(size * 3 // 4, size) if held_out else range(size * 3 // 4)


def usable(item: Item) -> bool:
    """Whether an item is known to have an answer. Raises NoItem."""
    question = made_entry(item)["question"]
    whole = isinstance(question, str) and bool(question.strip())
    return whole and (item.family in WITHOUT_ANSWER or known_answer(item) is not None)


def drawn_items(
    name: str, levels: Mapping[str, int], values: Mapping[str, Any], *, count: int, held_out: bool, seed: int
) -> Iterator[Item]:
    """Up to `count` items with different questions, all of one side. Raises UserError if there are none."""
    base, seen, dry, failed, reason = derive(seed, NAME, name) % SEEDS, set[str](), 0, 0, ""
    for index in index_range(name, held_out=held_out):
        if len(seen) == count or dry == DRY or (failed == FAILURES and not seen):
            break
        item, dry = Item(family=name, levels=levels, values=values, seed=base, index=index), dry + 1
        try:
            likeness = question_likeness(name, made_entry(item)["question"])
            if likeness in seen or is_held_out(likeness) is not held_out or not usable(item):
                continue
        except NoItem as found:
            failed, reason = failed + 1, str(found)
            continue
        dry = 0
        seen.add(likeness)
        yield item
    if not seen and count:
        side = "held-out " if held_out else ""
        why = reason or f"of the questions of these levels, which are few, none is a {side}one"
        raise UserError(f"env.own: reasoning-gym makes no {side}task of {name} ({why}); change level, levels or values")


def task_of_item(item: Item, *, split: str) -> Task:
    question = made_entry(item)["question"]
    return root_task(
        env=NAME, split=split, instruction=question, content=item.content(), kind=item.family, scene=item.family
    )
