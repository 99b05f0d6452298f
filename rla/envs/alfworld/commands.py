"""The kinds of commands, and which commands a game withholds: they are not offered, and do nothing where they are said.

A withheld command is a kind ("open": no command that opens anything), or the way to a place ("go to cabinet 3").
Places that share a location are withheld together: who stands at one of them can use the other. The kind of "move X to
Y" and of "put X in/on Y" is "put". Source of the idea: EnvHarness (arXiv 2608.19880), in which an environment keeps its
goal and changes what it offers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from rla.envs.alfworld.state import NOTHING
from rla.errors import UserError

KINDS: tuple[str, ...] = ("look", "inventory", "help", "examine", "open", "close", "take", "put")
KINDS += ("clean", "heat", "cool", "use", "slice")
GO = "go to "
PLACE = re.compile(r"go to ([a-z]{1,24} [1-9][0-9]?)", re.ASCII)


def command_kind(command: str) -> str:
    """Of a command that the engine offers: "put" of "move mug 1 to desk 1"; "go" of a way."""
    word = command.partition(" ")[0]
    return "put" if word == "move" else word


def withheld_place(command: str) -> str | None:
    """ "cabinet 3" of "go to cabinet 3"; None for a kind. Raises `ValueError` for what is neither."""
    if command in KINDS:
        return None
    found = PLACE.fullmatch(command)
    if found is None:
        raise ValueError("a withheld command is a kind of command or the way to a place")
    return found[1]


class Offer:
    """What a game withholds, by the numbers of its tables. `kinds`: withheld kinds. `barred`: receptacles that nobody
    can go to.
    """

    def __init__(self, withheld: Collection[str], *, receptacles: Sequence[str], location_of: Sequence[int]) -> None:
        """Raises `UserError` where `withheld` names no kind and no place of the scene."""
        places = {name: number for number, name in enumerate(receptacles)}
        named: set[int] = set()
        for command in withheld:
            try:
                place = withheld_place(command)
                if place is not None:
                    named.add(places[place])
            except (ValueError, KeyError):
                raise UserError(
                    "the game withholds what is no command of its scene; make or import the tasks again"
                ) from None
        locations = {location_of[number] for number in named} - {NOTHING}
        self.kinds = frozenset(withheld) & frozenset(KINDS)
        self.barred = frozenset(number for number, place in enumerate(location_of) if place in locations) | named
        self._ways = frozenset(GO + receptacles[number] for number in self.barred)

    def allows(self, command: str) -> bool:
        return command not in self._ways and command_kind(command) not in self.kinds
