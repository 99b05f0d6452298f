"""Statistics of ALFRED's scenes, counted over ALFWorld's training games (`catalog.json`).

Types are named without "Type" ("Mug"). `CAN_CONTAIN` and `CAPABILITIES` agree with the facts (`canContain`,
`cleanable`, ...) of every training game. `ROOMS` says how often a room has a type, and `share` how often a receptacle
holds an object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

_COUNTED: dict[str, Any] = json.loads(Path(__file__).with_name("catalog.json").read_text())
LARGEST_NUMBER = 30  # of names such as "drawer 27": no training game has more instances of one type


class Room(StrEnum):
    """The four kinds of scene; ALFRED numbers their floor plans 1-30, 201-230, 301-330 and 401-430."""

    KITCHEN = "kitchen"
    LIVING_ROOM = "living_room"
    BEDROOM = "bedroom"
    BATHROOM = "bathroom"


@dataclass(frozen=True, slots=True)
class _RoomTable:
    """Per type the share of the room's games that have it, and its mean count in those games.

    Every built-in scene of the room has the `essential` receptacles and the `fixtures` (objects), however small.
    """

    essential: list[str]
    fixtures: list[str]
    receptacles: dict[str, tuple[float, float]]
    objects: dict[str, tuple[float, float]]


def _sets(table: dict[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    return {name: frozenset(types) for name, types in table.items()}


CAN_CONTAIN = _sets(_COUNTED["can_contain"])
CAPABILITIES = _sets(_COUNTED["capabilities"])  # in the order in which a scene lists them
FIXED = frozenset(_COUNTED["fixed"])  # objects that cannot be picked up
FREE_STANDING = frozenset(_COUNTED["free_standing"])  # can be picked up, but lie on the floor, out of reach
STANDS = _sets(_COUNTED["stands"])  # places of objects that no receptacle type `canContain`
OPENABLE: dict[str, float] = _COUNTED["openable"]  # share of a type's instances that have a door; others are open
BASINS = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}  # basin -> object; ids of basins end in the basin's name
ROOMS = {Room(name): _RoomTable(**table) for name, table in _COUNTED["rooms"].items()}
TYPES = frozenset(CAN_CONTAIN).union(*(table.objects.keys() | table.receptacles.keys() for table in ROOMS.values()))
UNLIKELY = 0.005  # for shares below 2%, which are left out


def share(item: str, place: str) -> float:
    """The chance that a receptacle of type `place` holds an object of type `item`; types in either case.

    Counted over every third training game, among scenes that have the object.
    """
    percent: int | None = _COUNTED["shares"].get(item.lower(), {}).get(place.lower())
    return UNLIKELY if percent is None else percent / 100
