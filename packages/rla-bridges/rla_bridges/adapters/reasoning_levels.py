"""Edits of reasoning-gym items: one attribute of the family goes one level up or down.

    {"attribute": "num_terms", "level": 3, "item": 1701}

`item` is the place in the index range of the parent's side from which the search starts. The child is the first item
from there that is on the parent's side and has an answer that scores 1, so every child can be solved by construction.
An edit is untrusted. Other environments that generate items by level implement `LevelledItems`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol

from rla.envs.authoring import changed_task, edit_values
from rla.envs.chat_prompts import QUOTED, quoted
from rla.envs.protocols import Message, ProposalView, RejectedEdit
from rla.store.records import Direction, Task
from rla_bridges.adapters.reasoning_families import WITHOUT_ANSWER, NoItem, opened_family
from rla_bridges.adapters.reasoning_items import (
    Item,
    index_range,
    is_held_out,
    item_of,
    made_entry,
    question_likeness,
    usable,
)

FIELDS: Mapping[str, type] = {"attribute": str, "level": int, "item": int}
ITEM_NUMBERS = 1 << 20
TRIES = 32  # items that are tried, starting with the one that the edit names


class LevelledItems(Protocol):
    """Items of families whose attributes have levels. All methods but `item_of` may raise NoItem."""

    def item_of(self, task: Task) -> Item | None:
        """None if the task was not made by a family."""
        ...

    def tops(self, item: Item) -> Mapping[str, int]:
        """The highest level of each attribute."""
        ...

    def about(self, item: Item) -> Mapping[str, str]: ...

    def other_at(self, item: Item, attribute: str, level: int) -> bool:
        """Whether that level makes other questions than the item's own."""
        ...

    def asked(self, item: Item) -> str | None:
        """The question, or None if it has no known answer."""
        ...


class GymItems:
    """`LevelledItems` of reasoning-gym."""

    def item_of(self, task: Task) -> Item | None:
        return item_of(task)

    def tops(self, item: Item) -> Mapping[str, int]:
        return opened_family(item.family).tops

    def about(self, item: Item) -> Mapping[str, str]:
        return opened_family(item.family).about

    def other_at(self, item: Item, attribute: str, level: int) -> bool:
        """Whether the package gets other parameters."""
        family = opened_family(item.family)
        before = family.fields(item.levels, item.values)
        return family.fields({**item.levels, attribute: level}, item.values) != before

    def asked(self, item: Item) -> str | None:
        return str(made_entry(item)["question"]) if usable(item) else None


GYM = GymItems()


def drawn_level_edits(task: Task, *, direction: str, seed: int, count: int, source: LevelledItems = GYM) -> list[str]:
    """Up to `count` edits of one level each, over the attributes in random order, then again with other items."""
    rng, item = random.Random(seed), source.item_of(task)
    if item is None:
        return []
    step = 1 if direction == Direction.HARDER else -1
    moved = {name: level + step for name, level in item.levels.items()}
    near = [name for name in sorted(moved) if _has_level(source, item, name, moved[name])]
    rng.shuffle(near)
    names = [near[number % len(near)] for number in range(count)] if near else []
    edits = [{"attribute": name, "level": moved[name], "item": rng.randrange(ITEM_NUMBERS)} for name in names]
    return [json.dumps(edit, sort_keys=True) for edit in edits]


def _has_level(source: LevelledItems, item: Item, attribute: str, level: int) -> bool:
    """Whether the level exists and makes a difference."""
    if not 0 <= level <= source.tops(item)[attribute]:
        return False
    try:
        return source.other_at(item, attribute, level)
    except NoItem:
        return False


def child_of_item(task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
    """The pending task that results from an edit of a reasoning-gym task. Raises RejectedEdit."""
    if item_of(task).family in WITHOUT_ANSWER:
        raise RejectedEdit("the family keeps no answers, so nothing proves that a changed question has one")
    likenesses = {item_likeness(task), item_likeness(root)}
    values, child, question = moved_item(task, edit, GYM, taken={*taken, *likenesses})
    return changed_task(task, content=child.content(), edit=values, taken=taken, created=created, instruction=question)


def moved_item(
    task: Task, edit: str, source: LevelledItems, *, taken: Collection[str]
) -> tuple[dict[str, Any], Item, str]:
    """The values of an edit, the item that it makes of the task's, and its question. `taken`: likenesses of existing
    tasks. Raises RejectedEdit.
    """
    values, parent = edit_values(edit, FIELDS), source.item_of(task)
    if parent is None:
        raise RejectedEdit("no family has made this question, so it has no levels")
    attribute, level = values["attribute"], values["level"]
    tops = source.tops(parent)
    if attribute not in tops:
        raise RejectedEdit(f"no such attribute; there are {', '.join(sorted(tops))}")
    if abs(level - parent.levels[attribute]) != 1 or not _has_level(source, parent, attribute, level):
        raise RejectedEdit(f"no level of {attribute} one away from {parent.levels[attribute]}")
    if not 0 <= values["item"] < ITEM_NUMBERS:
        raise RejectedEdit(f"item must lie in [0, {ITEM_NUMBERS})")
    likeness = question_likeness(parent.family, task.instruction)
    wanted = replace(parent, levels={**parent.levels, attribute: level})
    child, question = _first_usable(wanted, values["item"], source, held_out=is_held_out(likeness))
    if question_likeness(child.family, question) in taken:
        raise RejectedEdit("there is such a question already")
    return values, child, question


def _first_usable(wanted: Item, number: int, source: LevelledItems, *, held_out: bool) -> tuple[Item, str]:
    """The first item from `number` on that has a known answer and a question on the requested side, and that question.
    Raises RejectedEdit.
    """
    indices = index_range(wanted.family, held_out=held_out)
    for step in range(TRIES):
        item = replace(wanted, index=indices[(number + step) % len(indices)])
        try:
            question = source.asked(item)
        except NoItem as reason:
            raise RejectedEdit(f"no question of these levels can be made: {reason}") from None
        if question is not None and is_held_out(question_likeness(item.family, question)) is held_out:
            return item, question
    raise RejectedEdit(f"of {TRIES} questions of these levels, none is on the task's side and has a known answer")


def item_likeness(task: Task) -> str:
    return question_likeness(task.kind, task.instruction)


class LevelPrompt:
    """A `ProposalPrompt` that asks which attribute of the family should go up or down."""

    criticised = False

    def __init__(self, source: LevelledItems = GYM) -> None:
        self._source = source

    def messages(self, task: Task, view: ProposalView) -> list[Message]:
        item = self._source.item_of(task)
        assert item is not None  # tasks without a family are edited in other ways
        about = self._source.about(item)
        lines = [
            f"- {name}: level {item.levels[name]} of 0 to {top} ({about[name]})"
            for name, top in sorted(self._source.tops(item).items())
        ]
        wanted = "harder" if view.direction == Direction.HARDER else "easier"
        parts = {"Question": task.instruction, "Course": f"{view.accuracy:.0%} are right. {view.critique}"}
        asked = (
            f"A question of the family {item.family} should become {wanted}. Choose the attribute whose level should "
            f"change by one, up for harder and down for easier, and any item number.\n" + "\n".join(lines)
        )
        ending = 'Answer with one JSON object: {"attribute": ..., "level": ..., "item": ...}.'
        return [{"role": "user", "content": f"{asked}\n{QUOTED}\n\n{quoted(parts)}\n\n{ending}"}]

    def schema(self, task: Task) -> Mapping[str, Any]:
        item = self._source.item_of(task)
        tops = {} if item is None else self._source.tops(item)
        numbers = {"type": "integer", "minimum": 0}
        properties = {
            "attribute": {"enum": sorted(tops) or [""]},
            "level": {**numbers, "maximum": max(tops.values(), default=0)},
            "item": {**numbers, "maximum": ITEM_NUMBERS - 1},
        }
        return {
            "type": "object",
            "properties": properties,
            "required": sorted(properties),
            "additionalProperties": False,
        }
