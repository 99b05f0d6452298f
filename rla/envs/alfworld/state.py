"""What changes in a game, and the operators that change it. Numbers index the tables of `FastGame`."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

Pairs = frozenset[tuple[int, int]]
Indices = frozenset[int]
NOTHING = -1
"""In place of an object or receptacle number: there is none."""


class State(NamedTuple):
    """What changes, hashable. `contents` has one sorted tuple of object numbers per receptacle."""

    location: int
    held: int
    contents: tuple[tuple[int, ...], ...]
    opened: Indices
    clean: Indices
    hot: Indices
    cool: Indices
    toggled: Indices
    sliced: Indices
    lying: Pairs
    """(object, location): where an object counts as being, which need not be where its receptacle is."""
    removed: Pairs
    """(object, receptacle): taken out and not put back."""


class Op(StrEnum):
    """The domain's operators."""

    LOOK = "look"
    INVENTORY = "inventory"
    HELP = "help"
    GO = "go"
    EXAMINE_PLACE = "examine place"
    EXAMINE_ITEM = "examine item"
    OPEN = "open"
    CLOSE = "close"
    TAKE = "take"
    PUT = "put"
    CLEAN = "clean"
    HEAT = "heat"
    COOL = "cool"
    USE = "use"
    SLICE = "slice"


class Move(NamedTuple):
    """A ground operator: an object number and a receptacle number (for SLICE, the object to slice)."""

    op: Op
    item: int = NOTHING
    place: int = NOTHING
