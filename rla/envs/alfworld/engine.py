"""The fast engine: ALFRED's PDDL domain as a state machine over integers, byte-identical to TextWorld's answers.

`FastGame` holds the tables of a game, which its episodes share, and `State` all that changes. `legal` lists the
admissible commands of a state, `apply` is the transition, and both are pure. The text that answers an operator is a
function of the tables and of the state *after* it. `FastEngine` is the environment around them. Loading takes
milliseconds and a step some tens of microseconds.

Receptacles, objects and locations are numbered in the order of their lower-cased ids, which is the order in which the
stock engine lists them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rla.envs.alfworld.game import Fact, Game, Verbs, display_names, game_of
from rla.envs.alfworld.goals import TREATMENTS, TaskKind
from rla.envs.observation import Observation
from rla.errors import UserError

_Pairs = frozenset[tuple[int, int]]
_Indices = frozenset[int]
NOTHING = -1  # in place of the number of an object, receptacle or location

GO = "go to "
NOTHING_HAPPENS = "Nothing happens."
_WELCOME = "-= Welcome to TextWorld, ALFRED! =-\n\n{look}\n\nYour task is to: {sentence}"
_PUT_COMMAND = {Verbs.PUT: "put {item} in/on {place}", Verbs.MOVE: "move {item} to {place}"}
_PUT_FEEDBACK = {Verbs.PUT: "You put the {item} in/on the {place}.", Verbs.MOVE: "You move the {item} to the {place}."}
_HELP = re.compile(r'"help\.feedback"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*("(?:[^"\\]|\\.)*")')
_OUR_HELP = (
    "Commands: look, inventory, examine, go to, open, close, take ... from, move ... to, use,\n"
    "heat ... with, clean ... with, cool ... with, slice ... with\n"
)


class State(NamedTuple):
    """What changes, hashable."""

    location: int
    held: int
    contents: tuple[tuple[int, ...], ...]  # per receptacle its objects, sorted
    opened: _Indices
    clean: _Indices
    hot: _Indices
    cool: _Indices
    toggled: _Indices
    sliced: _Indices
    lying: _Pairs  # (object, location) as the facts have it, which need not be the location of the receptacle
    removed: _Pairs  # (object, receptacle): taken out and not put back


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
    """A ground operator: the numbers of an object (for SLICE, the object to slice) and a receptacle."""

    op: Op
    item: int = NOTHING
    place: int = NOTHING


class FastGame:
    """The immutable tables of one game. Raises UserError if its facts do not describe a scene."""

    def __init__(self, game: Game) -> None:
        self.game, self.verbs, self.goal = game, game.verbs, game.problem.goal
        self._facts: defaultdict[str, list[Fact]] = defaultdict(list)
        for fact in game.problem.facts:
            self._facts[fact[0].lower()].append(fact[1:])
        self._name_everything()
        self._place_receptacles()
        self._sort_things()
        self.start = self._start_state()
        self._elsewhere: dict[int, dict[str, Move]] = {}

    def accepts(self, receptacle: int, item: int) -> bool:
        """Whether the type of `receptacle` can contain the type of `item`."""
        return (self._receptacle_type[receptacle], self._object_type[item]) in self._can_contain

    def is_shut(self, state: State, receptacle: int) -> bool:
        return receptacle in self.openable and receptacle not in state.opened

    def reachable(self, receptacle: int) -> bool:
        """Whether the agent can go there."""
        return self.location_of[receptacle] != NOTHING

    def elsewhere(self, location: int) -> dict[str, Move]:
        """The commands at `location` that use nothing there: the ways to other locations, `look` and the like."""
        if location not in self._elsewhere:
            moves = {"look": Move(Op.LOOK), "inventory": Move(Op.INVENTORY)}
            if self.verbs is Verbs.MOVE:
                moves["help"] = Move(Op.HELP)
            for receptacle, name in enumerate(self.receptacles):
                if self.location_of[receptacle] not in (location, NOTHING):
                    moves[GO + name] = Move(Op.GO, place=receptacle)
            self._elsewhere[location] = moves
        return self._elsewhere[location]

    def won(self, state: State) -> bool:
        if self.goal.kind is TaskKind.LOOK:
            here = self.receptacles_at.get(state.location, ())
            lit = (item in self.lamps & state.toggled for receptacle in here for item in state.contents[receptacle])
            return state.held in self.wanted and any(lit)
        for receptacle in self.targets:
            contents = state.contents[receptacle]
            if contents and sum(i in self.wanted and self.treated(state, i) for i in contents) >= self.goal.needed:
                return True
        return False

    def treated(self, state: State, item: int) -> bool:
        """Whether `item` is in the condition that the goal asks for."""
        if self.treatment is None:
            return True
        return item in {Op.CLEAN: state.clean, Op.HEAT: state.hot, Op.COOL: state.cool}[self.treatment]

    def _name_everything(self) -> None:
        kinds = dict(self.game.problem.objects)
        named = sorted(set[str]().union(*(fact[1:] for fact in self.game.problem.facts)), key=str.lower)
        names = dict(zip(named, display_names(map(str.lower, named)).values(), strict=True))
        grouped: dict[str, list[str]] = {"receptacle": [], "object": [], "location": []}
        for identifier in named:
            if kinds.get(identifier) in grouped:
                grouped[kinds[identifier]].append(identifier)
        self._receptacle, self._object, self._location = (
            {identifier: number for number, identifier in enumerate(found)} for found in grouped.values()
        )
        self.receptacles, self.objects, self.locations = (
            tuple(names[identifier] for identifier in found) for found in grouped.values()
        )

    def _place_receptacles(self) -> None:
        places = [NOTHING] * len(self.receptacles)
        shared: defaultdict[int, list[int]] = defaultdict(list)
        for receptacle, location in sorted(self._pairs("receptacleatlocation", self._receptacle, self._location)):
            places[receptacle] = location
            shared[location].append(receptacle)
        self.location_of = tuple(places)
        self.receptacles_at = {location: tuple(here) for location, here in shared.items()}

    def _sort_things(self) -> None:
        """The things of each type and of each ability."""
        receptacle_type, object_type = [""] * len(self.receptacles), [""] * len(self.objects)
        for identifier, kind in self._rows("receptacletype", 2):
            receptacle_type[self._find(identifier, self._receptacle)] = kind
        for identifier, kind in self._rows("objecttype", 2):
            object_type[self._find(identifier, self._object)] = kind
        self._receptacle_type, self._object_type = tuple(receptacle_type), tuple(object_type)
        self._can_contain = set(self._rows("cancontain", 2))
        self.devices = {Op(how.verb): _of_type(receptacle_type, how.device) for how in TREATMENTS.values()}
        if self.verbs is Verbs.PUT:
            self.devices[Op.CLEAN] |= _of_type(receptacle_type, "Sink")
        self.knives = _of_type(object_type, "Knife", "ButterKnife")
        self.openable = self._having("openable", self._receptacle)
        self.pickupable = self._having("pickupable", self._object)
        self.toggleable = self._having("toggleable", self._object)
        self.sliceable = self._having("sliceable", self._object)
        self.containers = self._having("isreceptacleobject", self._object)
        self.treatable = {Op(how.verb): self._having(how.able, self._object) for how in TREATMENTS.values()}
        nested: defaultdict[int, list[int]] = defaultdict(list)
        for inner, outer in sorted(self._pairs("inreceptacleobject", self._object, self._object)):
            nested[outer].append(inner)
        self.nested = {outer: tuple(inner) for outer, inner in nested.items()}
        self.treatment = Op(TREATMENTS[self.goal.kind].verb) if self.goal.kind in TREATMENTS else None
        self.wanted = _of_type(object_type, self.goal.object_type)
        if self.treatment is not None:
            self.wanted &= self.treatable[self.treatment]
        self.lamps = _of_type(object_type, self.goal.target_type) & self.toggleable
        self.targets = tuple(sorted(_of_type(receptacle_type, self.goal.target_type)))

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

    def _rows(self, predicate: str, arity: int) -> list[Fact]:
        rows = self._facts.get(predicate, [])
        if any(len(row) != arity for row in rows):
            raise UserError(f"a fact ({predicate} ...) of the scene does not have {arity} arguments; give it so many")
        return rows

    def _having(self, predicate: str, index: dict[str, int]) -> _Indices:
        return frozenset(self._find(identifier, index) for (identifier,) in self._rows(predicate, 1))

    def _pairs(self, predicate: str, left: dict[str, int], right: dict[str, int]) -> _Pairs:
        return frozenset((self._find(a, left), self._find(b, right)) for a, b in self._rows(predicate, 2))

    def _find(self, identifier: str, index: dict[str, int]) -> int:
        if identifier not in index:
            raise UserError(f"a fact of the scene names {identifier} where a thing of another type belongs")
        return index[identifier]


def _of_type(types: Iterable[str], *kinds: str) -> _Indices:
    names = {f"{kind}Type".lower() for kind in kinds}
    return frozenset(index for index, name in enumerate(types) if name.lower() in names)


@lru_cache(maxsize=512)
def tables_of(payload: str) -> FastGame:
    """The tables of a task's payload, made once for all episodes."""
    return FastGame(game_of(payload))


def legal(tables: FastGame, state: State) -> dict[str, Move]:
    """Every admissible command of `state` with its operator, unordered."""
    moves = dict(tables.elsewhere(state.location))
    for receptacle in tables.receptacles_at.get(state.location, ()):
        _at_receptacle(tables, state, receptacle, moves)
    held = state.held
    if held != NOTHING:
        name = tables.objects[held]
        moves[f"examine {name}"] = Move(Op.EXAMINE_ITEM, held)
        if held in tables.knives:
            for item in tables.sliceable:
                if (item, state.location) in state.lying:
                    moves[f"slice {tables.objects[item]} with {name}"] = Move(Op.SLICE, item)
    return moves


def _at_receptacle(tables: FastGame, state: State, receptacle: int, moves: dict[str, Move]) -> None:
    place, held = tables.receptacles[receptacle], state.held
    moves[f"examine {place}"] = Move(Op.EXAMINE_PLACE, NOTHING, receptacle)
    shut = tables.is_shut(state, receptacle)
    if receptacle in tables.openable:
        op = Op.OPEN if shut else Op.CLOSE
        moves[f"{op} {place}"] = Move(op, NOTHING, receptacle)
    for item in state.contents[receptacle]:
        # A lamp can be switched on through a closed door; taking needs an open one and a free hand.
        if item in tables.toggleable:
            moves[f"use {tables.objects[item]}"] = Move(Op.USE, item, receptacle)
        if held == NOTHING and not shut and item in tables.pickupable:
            moves[f"take {tables.objects[item]} from {place}"] = Move(Op.TAKE, item, receptacle)
    if held == NOTHING:
        return
    name = tables.objects[held]
    if not shut and tables.accepts(receptacle, held):
        moves[_PUT_COMMAND[tables.verbs].format(item=name, place=place)] = Move(Op.PUT, held, receptacle)
    for op, devices in tables.devices.items():
        if receptacle in devices and held in tables.treatable[op]:
            moves[f"{op} {name} with {place}"] = Move(op, held, receptacle)


def apply(tables: FastGame, state: State, move: Move) -> State:
    """The state after `move`, which must be legal in `state`."""
    item, place = move.item, move.place
    match move.op:
        case Op.GO:
            return state._replace(location=tables.location_of[place])
        case Op.OPEN:
            return state._replace(opened=state.opened | {place})
        case Op.CLOSE:
            return state._replace(opened=state.opened - {place})
        case Op.TAKE:
            left = tuple(i for i in state.contents[place] if i != item)
            return state._replace(
                held=item,
                contents=(*state.contents[:place], left, *state.contents[place + 1 :]),
                lying=state.lying - {(item, state.location)},
                removed=state.removed | {(item, place)},
            )
        case Op.PUT:
            filled = tuple(sorted({*state.contents[place], item}))
            return state._replace(
                held=NOTHING,
                contents=(*state.contents[:place], filled, *state.contents[place + 1 :]),
                lying=state.lying | {(item, state.location)},
                removed=state.removed - {(item, place)},
            )
        case Op.CLEAN:
            return state._replace(clean=state.clean | {item})
        case Op.HEAT:
            return state._replace(hot=state.hot | {item}, cool=state.cool - {item})
        case Op.COOL:
            return state._replace(cool=state.cool | {item}, hot=state.hot - {item})
        case Op.USE:
            return state._replace(toggled=state.toggled | {item})
        case Op.SLICE:
            return state._replace(sliced=state.sliced | {item})
    return state


def _listing(names: Sequence[str], article: str = "a ") -> str:
    """ "a mug 1, a mug 2, and a cup 1"; "nothing" for no names."""
    phrases = [article + name for name in names]
    if len(phrases) < 2:
        return phrases[0] if phrases else "nothing"
    return f"{', '.join(phrases[:-1])}, and {phrases[-1]}"


def _in_the_middle(names: Sequence[str]) -> str:
    return f"You are in the middle of a room. Looking quickly around you, you see {_listing(names)}."


def _look(tables: FastGame, state: State) -> str:
    """The answer to `look`. Away from every receptacle the stock grammar finds "nothing"."""
    here = tables.receptacles_at.get(state.location)
    if here is None:
        return _in_the_middle([])
    facing = _listing([tables.receptacles[receptacle] for receptacle in here], article="")
    # One mention per receptacle of this place that the object was taken out of, sorted by object.
    loose = [
        tables.objects[item]
        for item, receptacle in sorted(state.removed)
        if receptacle in here and (item, state.location) in state.lying
    ]
    return f"You are facing the {facing}. Next to it, you see {_listing(loose)}."


def _feedback(tables: FastGame, state: State, move: Move) -> str:
    """The text that answers `move`; `state` is the one after it."""
    item, held = (tables.objects[one] if one != NOTHING else "" for one in (move.item, state.held))
    place = tables.receptacles[move.place] if move.place != NOTHING else ""
    match move.op:
        case Op.LOOK:
            return _look(tables, state)
        case Op.INVENTORY:
            return f"You are carrying: a {held}." if held else "You are not carrying anything."
        case Op.HELP:
            return _help_text()
        case Op.GO:
            there = tables.locations[state.location] if tables.verbs is Verbs.PUT else place
            return f"You arrive at {there}. {_examine_place(tables, state, move.place)}"
        case Op.EXAMINE_PLACE:
            return _examine_place(tables, state, move.place)
        case Op.EXAMINE_ITEM:
            return _examine_item(tables, state, move.item)
        case Op.OPEN:
            return f"You open the {place}. {_examine_place(tables, state, move.place)}"
        case Op.CLOSE:
            return f"You close the {place}."
        case Op.TAKE:
            return f"You pick up the {item} from the {place}."
        case Op.PUT:
            return _PUT_FEEDBACK[tables.verbs].format(item=item, place=place)
        case Op.USE:
            return f"You turn on the {item}."
        case Op.SLICE:
            return f"You sliced the {item} with the {held}."
    return f"You {move.op} the {item} using the {place}."


def _examine_place(tables: FastGame, state: State, receptacle: int) -> str:
    name = tables.receptacles[receptacle]
    inside = _listing([tables.objects[item] for item in state.contents[receptacle]])
    if receptacle not in tables.openable:
        return f"On the {name}, you see {inside}."
    if receptacle in state.opened:
        return f"The {name} is open. In it, you see {inside}."
    return f"The {name} is closed."


def _examine_item(tables: FastGame, state: State, item: int) -> str:
    name = tables.objects[item]
    if item in tables.containers:
        inside = _listing([tables.objects[inner] for inner in tables.nested.get(item, ())])
        return f"This is a normal {name}. In it, you see {inside}."
    words = []
    if item in state.hot:
        words.append("hot")
    elif item in state.cool:  # "cold" is only said of an object that is neither clean nor sliced
        words.append("cool" if item in state.clean or item in state.sliced else "cold")
    if item in state.clean:
        words.append("clean")
    if words:
        return f"This is a {' and '.join(words)}{' sliced' if item in state.sliced else ''} {name}."
    if item in tables.toggleable and item in state.toggled:
        return f"This {name} is on."
    if item in tables.sliceable and item in state.sliced:
        return f"This is a sliced {name}."
    return f"There's nothing special about {name}."


@cache
def _help_text() -> str:
    """The answer to `help`, which only the packaged dialect has. The text belongs to the `alfworld` package; without
    it the answer is ours.
    """
    package = find_spec("alfworld")
    grammar = Path(package.origin).with_name("data") / "alfred.twl2" if package and package.origin else None
    found = _HELP.search(grammar.read_text()) if grammar and grammar.is_file() else None
    return str(json.loads(found[1])).lstrip() if found else _OUR_HELP


class FastEngine:
    """`Environment` over shared tables. `state` and `restore` carry states between episodes."""

    def __init__(self, tables: FastGame) -> None:
        self.tables = tables
        self.restore(tables.start)

    def reset(self) -> Observation:
        tables = self.tables
        self.restore(tables.start)
        if self.state.location in tables.receptacles_at:
            seen = _look(tables, self.state)
        else:
            placed = zip(tables.receptacles, tables.location_of, strict=True)
            seen = _in_the_middle([name for name, place in placed if place != NOTHING])
        return self._observe(_WELCOME.format(look=seen, sentence=tables.game.sentence))

    def step(self, action: str) -> Observation:
        """Apply a command. One that is not admissible is answered by "Nothing happens." and changes nothing."""
        move = self._moves.get(action.strip())
        if move is None:
            return self._observe(NOTHING_HAPPENS)
        self.restore(apply(self.tables, self.state, move))
        return self._observe(_feedback(self.tables, self.state, move))

    def close(self) -> None:
        """Nothing to release."""

    def restore(self, state: State) -> None:
        self.state = state
        self._moves = legal(self.tables, state)

    def commands(self) -> tuple[str, ...]:
        """The admissible commands, in the stock engine's order."""
        return tuple(sorted(self._moves))

    def _observe(self, text: str) -> Observation:
        won, commands = self.tables.won(self.state), self.commands()
        return Observation(text=text, commands=commands, won=won, done=won, place=self._place())

    def _place(self) -> str:
        """`3 fridge 1 | mug 1 clean | fridge 1`: the location, the held object with its condition, open doors here.

        Doors elsewhere do not count: after a few of them, no two episodes would ever be in the same place.
        """
        tables, state = self.tables, self.state
        here = tables.receptacles_at.get(state.location, ())
        names = [tables.receptacles[receptacle] for receptacle in here]
        opened = [tables.receptacles[receptacle] for receptacle in here if receptacle in state.opened]
        conditions = {"clean": state.clean, "hot": state.hot, "cool": state.cool, "sliced": state.sliced}
        done = [name for name, items in conditions.items() if state.held in items]
        held = "" if state.held == NOTHING else " ".join([tables.objects[state.held], *done])
        return f"{state.location} {', '.join(names)} | {held} | {', '.join(opened)}"
