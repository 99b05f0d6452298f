"""Items of reasoning-gym as tasks: drawn for a split, made again from a payload, and their answers scored.

A payload names family, levels, values, seed and index. A question belongs to the held-out side or to that of training
by its own text, so that no question is on both, whatever the seed of the run and whatever an edit changes. Besides, the
sides have index ranges of their own. An item is a task only where its own answer scores 1, which proves that it can be
solved; four families keep no answers (`WITHOUT_ANSWER`).
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
SEEDS = 1 << 31  # seed and index together stay below 2 ** 32, the largest that NumPy takes
SIDES = 4  # one question of so many is held out
DRY = 400  # indices in a row without a new question: there are no more
FAILURES = 8  # of the first indices, that make no item: none do


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What makes a question again."""

    family: str
    levels: Mapping[str, int]
    values: Mapping[str, Any]
    seed: int
    index: int

    def content(self) -> dict[str, Any]:
        return asdict(self)


def item_of(task: Task) -> Item:
    """The item of a task's payload. Raises UserError for one that is none."""
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
        raise UserError(f"task {task.task_id}: its payload is no item of reasoning-gym; make the tasks again")
    return item


def made_entry(item: Item) -> dict[str, Any]:
    """The package's question, answer and what its verifier needs. Raises NoItem."""
    return _entry(json.dumps(item.content(), sort_keys=True))


@lru_cache(maxsize=2048)
def _entry(content: str) -> dict[str, Any]:
    item = Item(**json.loads(content))
    items = opened_family(item.family).items(item.levels, item.values, seed=item.seed)
    with makes_no_item():
        found: dict[str, Any] = items[item.index]
    return found


def entry_of_task(task: Task) -> dict[str, Any]:
    """Raises UserError where the installed package makes another question than the task has."""
    try:
        entry = made_entry(item_of(task))
    except NoItem as reason:
        raise UserError(f"task {task.task_id}: reasoning-gym cannot make it ({reason}); make tasks anew") from None
    if entry["question"] != task.instruction:
        raise UserError(
            f"task {task.task_id}: the installed reasoning-gym makes another question of it; install the version that "
            "the tasks were made with, or make tasks anew"
        )
    return entry


def answer_score(item: Item, answer: str) -> float:
    """What the family's verifier gives for `answer`, in [0, 1]."""
    entry, text = made_entry(item), answer.strip()
    if not may_be_verified(item.family, text, entry):
        return 0.0
    items = opened_family(item.family).items(item.levels, item.values, seed=item.seed)
    try:
        with undisturbed():
            reward = float(items.score_answer(text, copy.deepcopy(entry)))
    except Exception:  # a verifier that fails on a text, in whatever way, has not accepted it
        return 0.0
    return min(max(reward, 0.0), 1.0) if math.isfinite(reward) else 0.0


def known_answer(item: Item) -> str | None:
    """The item's own answer, where it scores 1."""
    answer = made_entry(item)["answer"]
    return answer.strip() if isinstance(answer, str) and answer_score(item, answer) == 1.0 else None


def question_likeness(family: str, question: str) -> str:
    """Equal for questions that differ in nothing but white space and capitals."""
    return content_id(NAME, family, single_spaced(question).casefold())


def is_held_out(likeness: str) -> bool:
    """The side of a question."""
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
    """Up to `count` items with different questions, all of one side. Raises UserError where there are none."""
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
