"""Task edits as untrusted JSON text: strict reading into records that hold whitelisted names only.

An edit says what changes: `{"goal": {"kind", "object_type", "target_type"}, "move": [{"object", "to"}],
"add": [{"object_type", "to", "count"}], "remove": [{"object"}], "hint": "none|where|how|where_and_how",
"withhold": ["open", "go to drawer 1"], "give": ["close"]}`, every key optional, at least one present
(`schemas/edit.schema.json`). Things are named as the player sees them ("mug 1"), types as in the catalogue ("Mug").
Anything else is an `InvalidEdit`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from rla.envs.alfworld import catalog
from rla.envs.alfworld.goals import Goal, Hint, TaskKind
from rla.envs.alfworld.tables import GO, KINDS, PLACE

OFFER_KEYS = frozenset({"withhold", "give"})  # what changes what is offered, and neither goal nor scene
SCENE_KEYS = frozenset({"goal", "move", "add", "remove", "hint"})  # the others, proposed where nothing is asked for
KEYS = SCENE_KEYS | OFFER_KEYS
MAX_TEXT = 4000
MAX_ITEMS = 8
MAX_COUNT = 4
_NAME = re.compile(r"([a-z]{1,24}) ([1-9][0-9]?)", re.ASCII)


class InvalidEdit(Exception):
    """An edit that cannot be read, applied or proven; the message is the reason and quotes no unchecked
    text.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveEdit:
    """Object `item` lies in receptacle `to` from the start."""

    item: str
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """`count` more objects of a type in receptacle `to`."""

    object_type: str
    to: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What to change in a game. Nothing in `goal` or `hint`: as before. `withhold`, `give`: commands that the game does
    not offer any more, or again (`rla.envs.alfworld.tables`).
    """

    goal: Goal | None = None
    moves: tuple[MoveEdit, ...] = ()
    adds: tuple[Add, ...] = ()
    removes: tuple[str, ...] = ()
    hint: Hint | None = None
    withhold: tuple[str, ...] = ()
    give: tuple[str, ...] = ()

    def keys(self) -> frozenset[str]:
        """The names of what it changes."""
        return frozenset(self.fields())

    def to_json(self) -> str:
        """The text that `parse_edit` reads back as an equal edit."""
        return json.dumps(self.fields(), sort_keys=True)

    def fields(self) -> dict[str, Any]:
        """The JSON object: what is not changed has no name in it."""
        fields: dict[str, Any] = {}
        if self.goal is not None:
            fields["goal"] = {
                "kind": self.goal.kind.value,
                "object_type": self.goal.object_type,
                "target_type": self.goal.target_type,
            }
        if self.moves:
            fields["move"] = [{"object": move.item, "to": move.to} for move in self.moves]
        if self.adds:
            fields["add"] = [{"object_type": add.object_type, "to": add.to, "count": add.count} for add in self.adds]
        if self.removes:
            fields["remove"] = [{"object": name} for name in self.removes]
        if self.hint is not None:
            fields["hint"] = self.hint.value
        if self.withhold:
            fields["withhold"] = list(self.withhold)
        if self.give:
            fields["give"] = list(self.give)
        return fields


def parse_edit(text: str) -> Edit:
    """The edit that `text` states. Raises `InvalidEdit` for whatever is not exactly one such JSON object."""
    if len(text) > MAX_TEXT:
        raise InvalidEdit(f"the edit is longer than {MAX_TEXT} signs")
    try:
        value = json.loads(text, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise InvalidEdit("the edit is not a JSON object") from error
    fields = _object(value, "the edit", optional=KEYS)
    if not fields:
        raise InvalidEdit("the edit changes nothing")
    return Edit(
        goal=_goal(fields["goal"]) if "goal" in fields else None,
        moves=tuple(_move(item) for item in _items(fields, "move")),
        adds=tuple(_add(item) for item in _items(fields, "add")),
        removes=tuple(_remove(item) for item in _items(fields, "remove")),
        hint=Hint(_choice(fields["hint"], set(Hint), "hint")) if "hint" in fields else None,
        withhold=tuple(_command(item, "withhold") for item in _items(fields, "withhold")),
        give=tuple(_command(item, "give") for item in _items(fields, "give")),
    )


def _goal(value: object) -> Goal:
    fields = _object(value, "goal", required=frozenset({"kind", "object_type", "target_type"}))
    kind = TaskKind(_choice(fields["kind"], set(TaskKind), "goal.kind"))
    return Goal(
        kind=kind,
        object_type=_type(fields["object_type"], "goal.object_type"),
        target_type=_type(fields["target_type"], "goal.target_type"),
    )


def _move(value: object) -> MoveEdit:
    fields = _object(value, "move", required=frozenset({"object", "to"}))
    return MoveEdit(item=_name(fields["object"], "move.object"), to=_name(fields["to"], "move.to"))


def _add(value: object) -> Add:
    fields = _object(value, "add", required=frozenset({"object_type", "to", "count"}))
    count = fields["count"]
    if type(count) is not int or not 1 <= count <= MAX_COUNT:
        raise InvalidEdit(f"add.count is not a whole number from 1 to {MAX_COUNT}")
    kind = _type(fields["object_type"], "add.object_type")
    return Add(object_type=kind, to=_name(fields["to"], "add.to"), count=count)


def _remove(value: object) -> str:
    return _name(_object(value, "remove", required=frozenset({"object"}))["object"], "remove.object")


def _command(value: object, where: str) -> str:
    if isinstance(value, str) and value in KINDS:
        return value
    found = PLACE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidEdit(f'{where} has something else than kinds of commands and ways such as "{GO}drawer 1"')
    return GO + _name(found[1], where)


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise InvalidEdit("a key occurs twice in one object of the edit")
    return dict(pairs)


def _object(
    value: object,
    where: str,
    *,
    required: frozenset[str] = frozenset(),
    optional: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidEdit(f"{where} is not a JSON object")
    if not required <= set(value):
        raise InvalidEdit(f"{where} lacks {', '.join(sorted(required - set(value)))}")
    if not set(value) <= required | optional:
        raise InvalidEdit(f"{where} has other keys than {', '.join(sorted(required | optional))}")
    return value


def _items(fields: dict[str, Any], key: str) -> list[object]:
    if key not in fields:
        return []
    value = fields[key]
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_ITEMS:
        raise InvalidEdit(f"{key} is not a list of 1 to {MAX_ITEMS} entries")
    return value


def _choice(value: object, known: set[Any], where: str) -> str:
    if not isinstance(value, str) or value not in known:
        raise InvalidEdit(f"{where} is not one of {', '.join(sorted(known))}")
    return value


def _type(value: object, where: str) -> str:
    known = edit_type_names()
    if not isinstance(value, str) or value not in known:
        raise InvalidEdit(f"{where} is not a type of the catalogue")
    return value


def _name(value: object, where: str) -> str:
    match = _NAME.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[1] not in _lowered():
        raise InvalidEdit(f'{where} is not a name such as "mug 1"')
    return match[0]


@cache
def edit_type_names() -> frozenset[str]:
    """The types that an edit may name: all of the catalogue's."""
    return catalog.type_names()


@cache
def _lowered() -> frozenset[str]:
    return frozenset(name.lower() for name in edit_type_names())
