"""Items of reasoning-gym that change: one attribute of their family goes one level up or down.

    {"attribute": "num_terms", "level": 3, "item": 1701}

`item` says where in the index range of the parent's side the child is looked for: it is the first from there that is on
that side and has an answer that scores 1. So a child is proven by construction. An edit is untrusted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from rla.envs.adapters.reasoning_families import WITHOUT_ANSWER, Family, NoItem, opened_family
from rla.envs.adapters.reasoning_items import (
    Item,
    index_range,
    is_held_out,
    item_of,
    made_entry,
    question_likeness,
    usable,
)
from rla.envs.authoring import changed_task, edit_values
from rla.envs.quoting import QUOTED, quoted
from rla.envs.views import Message, ProposalView, RejectedEdit
from rla.store.records import Direction, Task

FIELDS: Mapping[str, type] = {"attribute": str, "level": int, "item": int}
ITEM_NUMBERS = 1 << 20
TRIES = 32  # items that are looked at, from the one that an edit names


def drawn_level_edits(task: Task, *, direction: str, seed: int, count: int) -> list[str]:
    """Up to `count` edits of one level, over the attributes in random order and then again with other items."""
    rng, item = random.Random(seed), item_of(task)
    family = opened_family(item.family)
    step = 1 if direction == Direction.HARDER else -1
    moved = {name: level + step for name, level in item.levels.items()}
    near = [name for name in sorted(moved) if changes(family, item, name, moved[name])]
    rng.shuffle(near)
    names = [near[number % len(near)] for number in range(count)] if near else []
    edits = [{"attribute": name, "level": moved[name], "item": rng.randrange(ITEM_NUMBERS)} for name in names]
    return [json.dumps(edit, sort_keys=True) for edit in edits]


def changes(family: Family, item: Item, attribute: str, level: int) -> bool:
    """Whether there is that level, and the package is told something else by it."""
    if not 0 <= level <= family.tops[attribute]:
        return False
    try:
        before = family.fields(item.levels, item.values)
        return family.fields({**item.levels, attribute: level}, item.values) != before
    except NoItem:
        return False


def child_of_item(task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
    """The pending task that an edit makes of `task`. Raises RejectedEdit."""
    values = edit_values(edit, FIELDS)
    parent = item_of(task)
    family = opened_family(parent.family)
    if parent.family in WITHOUT_ANSWER:
        raise RejectedEdit("the family keeps no answers, so nothing proves that a changed question has one")
    attribute, level = values["attribute"], values["level"]
    if attribute not in family.tops:
        raise RejectedEdit(f"no such attribute; there are {', '.join(sorted(family.tops))}")
    if abs(level - parent.levels[attribute]) != 1 or not changes(family, parent, attribute, level):
        raise RejectedEdit(f"no level of {attribute} one away from {parent.levels[attribute]}")
    if not 0 <= values["item"] < ITEM_NUMBERS:
        raise RejectedEdit(f"item must lie in [0, {ITEM_NUMBERS})")
    child = first_usable(
        replace(parent, levels={**parent.levels, attribute: level}),
        values["item"],
        held_out=is_held_out(item_likeness(task)),
    )
    question = made_entry(child)["question"]
    if question_likeness(child.family, question) in {*taken, item_likeness(task), item_likeness(root)}:
        raise RejectedEdit("there is such a question already")
    return changed_task(task, content=child.content(), edit=values, taken=taken, created=created, instruction=question)


def first_usable(wanted: Item, number: int, *, held_out: bool) -> Item:
    """The first item from `number` on that has a known answer, and whose question lies on the side that is asked for.

    Raises RejectedEdit.
    """
    indices = index_range(wanted.family, held_out=held_out)
    for step in range(TRIES):
        item = replace(wanted, index=indices[(number + step) % len(indices)])
        try:
            likeness = question_likeness(item.family, made_entry(item)["question"])
            if is_held_out(likeness) is held_out and usable(item):
                return item
        except NoItem as reason:
            raise RejectedEdit(f"no question of these levels can be made: {reason}") from None
    raise RejectedEdit(f"of {TRIES} questions of these levels, none is on the task's side and has a known answer")


def item_likeness(task: Task) -> str:
    return question_likeness(task.kind, task.instruction)


class LevelPrompt:
    """A `ProposalPrompt`: which attribute of the family should go up or down."""

    criticised = False

    def messages(self, task: Task, view: ProposalView) -> list[Message]:
        item = item_of(task)
        family = opened_family(item.family)
        lines = [
            f"- {name}: level {item.levels[name]} of 0 to {top} ({family.about[name]})"
            for name, top in sorted(family.tops.items())
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
        family = opened_family(item_of(task).family)
        numbers = {"type": "integer", "minimum": 0}
        properties = {
            "attribute": {"enum": sorted(family.tops) or [""]},
            "level": {**numbers, "maximum": max(family.tops.values(), default=0)},
            "item": {**numbers, "maximum": ITEM_NUMBERS - 1},
        }
        return {
            "type": "object",
            "properties": properties,
            "required": sorted(properties),
            "additionalProperties": False,
        }
