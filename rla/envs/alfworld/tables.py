"""A game as small integers: `State` and the operators that change it, and the tables that never change.

Receptacles, objects and locations are numbered in sorted order of their lower-cased ids, so that sorted
numbers are the stock engine's order of listing. `FastGame` is built once and shared by a game's episodes.

A game may withhold commands: they are not offered, and do nothing if they are said. A withheld command is a kind
("open": no command that opens anything), or the way to a place ("go to cabinet 3"). Places that share a location are
withheld together: who stands at one of them can use the other. The kind of "move X to Y" and of "put X in/on Y" is
"put". Source of the idea: EnvHarness (arXiv 2608.19880), in which an environment keeps its goal and changes what it
offers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from rla.envs.alfworld.goals import TaskKind
from rla.envs.alfworld.problem import Game, Verbs, display_names
from rla.errors import UserError

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


TREATMENTS = {TaskKind.CLEAN: Op.CLEAN, TaskKind.HEAT: Op.HEAT, TaskKind.COOL: Op.COOL}


class FastGame:
    """The immutable tables of one game. Raises `UserError` where its facts are not those of a scene."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.verbs = game.verbs
        facts: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
        for fact in game.problem.facts:
            facts[fact[0].lower()].append(fact[1:])
        self._facts = facts
        self._name_everything(game)
        self._place_receptacles()
        self.offer = Offer(game.withheld, receptacles=self.receptacles, location_of=self.location_of)
        self._sort_by_type()
        self._sort_by_ability()
        self._set_goal(game)
        self.start = self._start_state()
        self._travel: dict[int, dict[str, Move]] = {}

    def accepts(self, receptacle: int, item: int) -> bool:
        """Whether objects of this type may be put into receptacles of that type."""
        return (self.receptacle_type[receptacle], self.object_type[item]) in self._can_contain

    def is_shut(self, state: State, receptacle: int) -> bool:
        return receptacle in self.openable and receptacle not in state.opened

    def reachable(self, receptacle: int) -> bool:
        """Whether one can go there."""
        return self.location_of[receptacle] != NOTHING and receptacle not in self.offer.barred

    def usable(self, state: State, receptacle: int) -> bool:
        """Whether one can get at what is in it, now or after opening it."""
        return self.reachable(receptacle) and not ("open" in self.offer.kinds and self.is_shut(state, receptacle))

    def travel_from(self, location: int) -> dict[str, Move]:
        """The commands that lead away from `location`: not to the receptacles that share it."""
        known = self._travel.get(location)
        if known is None:
            known = {
                f"go to {name}": Move(Op.GO, place=receptacle)
                for receptacle, name in enumerate(self.receptacles)
                if self.location_of[receptacle] not in (location, NOTHING)
            }
            self._travel[location] = known
        return known

    def won(self, state: State) -> bool:
        """Whether the goal holds."""
        if self.goal.kind is TaskKind.LOOK:
            return state.held in self.wanted and self.lit(state, state.location)
        needed = 2 if self.goal.kind is TaskKind.TWO else 1
        for receptacle in self.targets:
            contents = state.contents[receptacle]
            if contents and sum(item in self.wanted and self.treated(state, item) for item in contents) >= needed:
                return True
        return False

    def lit(self, state: State, location: int) -> bool:
        """Whether a lamp of the goal's type that is switched on stands at `location`."""
        return any(
            item in self.lamps and item in state.toggled
            for receptacle in self.receptacles_at.get(location, ())
            for item in state.contents[receptacle]
        )

    def treated(self, state: State, item: int) -> bool:
        """Whether `item` is in the condition that the goal asks for."""
        match self.goal.kind:
            case TaskKind.CLEAN:
                return item in state.clean
            case TaskKind.HEAT:
                return item in state.hot
            case TaskKind.COOL:
                return item in state.cool
        return True

    def _name_everything(self, game: Game) -> None:
        kinds = dict(game.problem.objects)
        named = sorted(set[str]().union(*(fact[1:] for fact in game.problem.facts)), key=str.lower)
        names = dict(zip(named, display_names(map(str.lower, named)).values(), strict=True))
        grouped: dict[str, list[str]] = {"receptacle": [], "object": [], "location": []}
        for identifier in named:
            if kinds.get(identifier) in grouped:
                grouped[kinds[identifier]].append(identifier)
        self._receptacle = {name: index for index, name in enumerate(grouped["receptacle"])}
        self._object = {name: index for index, name in enumerate(grouped["object"])}
        self._location = {name: index for index, name in enumerate(grouped["location"])}
        self.receptacles = tuple(names[name] for name in grouped["receptacle"])
        self.objects = tuple(names[name] for name in grouped["object"])
        self.locations = tuple(names[name] for name in grouped["location"])

    def _place_receptacles(self) -> None:
        places = [NOTHING] * len(self.receptacles)
        shared: defaultdict[int, list[int]] = defaultdict(list)
        for receptacle, location in sorted(self._pairs("receptacleatlocation", self._receptacle, self._location)):
            if places[receptacle] != NOTHING:
                raise UserError(f"{self.receptacles[receptacle]} is at two locations; give it one")
            places[receptacle] = location
            shared[location].append(receptacle)
        self.location_of = tuple(places)
        self.receptacles_at = {location: tuple(here) for location, here in shared.items()}

    def _sort_by_type(self) -> None:
        receptacle_type, object_type = [""] * len(self.receptacles), [""] * len(self.objects)
        for identifier, kind in self._rows("receptacletype", 2):
            receptacle_type[self._find(identifier, self._receptacle)] = kind
        for identifier, kind in self._rows("objecttype", 2):
            object_type[self._find(identifier, self._object)] = kind
        self.receptacle_type, self.object_type = tuple(receptacle_type), tuple(object_type)
        self._can_contain = set(self._rows("cancontain", 2))
        sinks = {"sinkbasintype", "sinktype"} if self.verbs is Verbs.PUT else {"sinkbasintype"}
        self.devices = {
            Op.CLEAN: self._of_type(self.receptacle_type, sinks),
            Op.HEAT: self._of_type(self.receptacle_type, {"microwavetype"}),
            Op.COOL: self._of_type(self.receptacle_type, {"fridgetype"}),
        }
        self.knives = self._of_type(self.object_type, {"knifetype", "butterknifetype"})

    def _sort_by_ability(self) -> None:
        self.openable = self._having("openable", self._receptacle)
        self.pickupable = self._having("pickupable", self._object)
        self.toggleable = self._having("toggleable", self._object)
        self.sliceable = self._having("sliceable", self._object)
        self.containers = self._having("isreceptacleobject", self._object)
        self.treatable = {
            Op.CLEAN: self._having("cleanable", self._object),
            Op.HEAT: self._having("heatable", self._object),
            Op.COOL: self._having("coolable", self._object),
        }
        nested: defaultdict[int, list[int]] = defaultdict(list)
        for inner, outer in sorted(self._pairs("inreceptacleobject", self._object, self._object)):
            nested[outer].append(inner)
        self.nested = {outer: tuple(inner) for outer, inner in nested.items()}

    def _set_goal(self, game: Game) -> None:
        self.goal = game.problem.goal
        wanted = self._of_type(self.object_type, {f"{self.goal.object_type}type".lower()})
        treatment = TREATMENTS.get(self.goal.kind)
        self.wanted = wanted if treatment is None else wanted & self.treatable[treatment]
        target = {f"{self.goal.target_type}type".lower()}
        self.lamps = self._of_type(self.object_type, target) & self.toggleable
        self.targets = tuple(sorted(self._of_type(self.receptacle_type, target)))

    def _start_state(self) -> State:
        agents = self._rows("atlocation", 2)
        if len(set(agents)) != 1:
            raise UserError(f"the scene has {len(set(agents))} agent positions; give one (atLocation agent location)")
        held = [self._find(item, self._object) for _, item in self._rows("holds", 2)]
        contents: list[list[int]] = [[] for _ in self.receptacles]
        for item, receptacle in sorted(self._pairs("inreceptacle", self._object, self._receptacle)):
            contents[receptacle].append(item)
        return State(
            location=self._find(agents[0][1], self._location),
            held=held[0] if held else NOTHING,
            contents=tuple(tuple(items) for items in contents),
            opened=self._having("opened", self._receptacle),
            clean=self._having("isclean", self._object),
            hot=self._having("ishot", self._object),
            cool=self._having("iscool", self._object),
            toggled=self._having("istoggled", self._object),
            sliced=self._having("issliced", self._object),
            lying=self._pairs("objectatlocation", self._object, self._location),
            removed=frozenset(),
        )

    def _rows(self, predicate: str, arity: int) -> list[tuple[str, ...]]:
        rows = self._facts.get(predicate, [])
        if any(len(row) != arity for row in rows):
            raise UserError(f"a fact ({predicate} ...) of the scene does not have {arity} arguments; give it so many")
        return rows

    def _having(self, predicate: str, index: dict[str, int]) -> Indices:
        return frozenset(self._find(identifier, index) for (identifier,) in self._rows(predicate, 1))

    def _pairs(self, predicate: str, left: dict[str, int], right: dict[str, int]) -> Pairs:
        return frozenset((self._find(a, left), self._find(b, right)) for a, b in self._rows(predicate, 2))

    def _find(self, identifier: str, index: dict[str, int]) -> int:
        if identifier not in index:
            raise UserError(f"a fact of the scene names {identifier} where a thing of another type belongs")
        return index[identifier]

    @staticmethod
    def _of_type(types: Iterable[str], names: set[str]) -> Indices:
        return frozenset(index for index, name in enumerate(types) if name.lower() in names)
