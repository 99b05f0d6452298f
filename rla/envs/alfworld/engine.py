"""The fast engine: ALFRED's PDDL domain as a state machine over integers, byte-identical to TextWorld's.

`legal` lists a state's ground operators by command, `apply` is the transition, both pure. `FastEngine` is the
environment around them. Loading takes milliseconds and a step some tens of microseconds.

What the agent reads is a pure function of the tables and the state *after* the operator. Two dialects differ in three
sentences, see `Verbs`. The help text exists in the packaged dialect only and belongs to the `alfworld` package: if that
is installed, the text is read from there, so that `help` answers as the stock engine does; otherwise it is ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rla.envs.alfworld.problem import Verbs
from rla.envs.alfworld.tables import NOTHING, FastGame, Move, Op, State
from rla.envs.observation import Observation

__all__ = ["FastEngine", "FastGame", "Move", "Op", "State", "apply", "legal"]

WELCOME = "-= Welcome to TextWorld, ALFRED! =-\n\n{look}\n\nYour task is to: {sentence}"
NOTHING_HAPPENS = "Nothing happens."
PUT_COMMAND = {Verbs.PUT: "put {item} in/on {place}", Verbs.MOVE: "move {item} to {place}"}
PUT_FEEDBACK = {
    Verbs.PUT: "You put the {item} in/on the {place}.",
    Verbs.MOVE: "You move the {item} to the {place}.",
}
OUR_HELP = (
    "Commands: look, inventory, examine, go to, open, close, take ... from, move ... to, use,\n"
    "heat ... with, clean ... with, cool ... with, slice ... with\n"
)
_HELP = re.compile(r'"help\.feedback"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*("(?:[^"\\]|\\.)*")')


def listing(names: Sequence[str]) -> str:
    """ "a mug 1, a mug 2, and a cup 1"; "nothing" where there is none."""
    return conjunction([f"a {name}" for name in names])


def conjunction(phrases: Sequence[str]) -> str:
    """The phrases joined by ", " and, before the last one, ", and "."""
    if len(phrases) < 2:
        return phrases[0] if phrases else "nothing"
    return f"{', '.join(phrases[:-1])}, and {phrases[-1]}"


@cache
def help_text() -> str:
    """What `help` answers in the packaged dialect."""
    package = find_spec("alfworld")
    if package is None or package.origin is None:
        return OUR_HELP
    grammar = Path(package.origin).parent / "data" / "alfred.twl2"
    found = _HELP.search(grammar.read_text()) if grammar.is_file() else None
    return str(json.loads(found[1])).lstrip() if found else OUR_HELP


def welcome(tables: FastGame, state: State) -> str:
    """The first observation: the room, or the receptacle the agent faces, and the task."""
    if state.location in tables.receptacles_at:
        seen = look(tables, state)
    else:
        seen = _in_the_middle(
            [name for name, place in zip(tables.receptacles, tables.location_of, strict=True) if place != NOTHING]
        )
    return WELCOME.format(look=seen, sentence=tables.game.sentence)


def look(tables: FastGame, state: State) -> str:
    """What `look` says. Away from every receptacle the stock grammar finds "nothing"."""
    here = tables.receptacles_at.get(state.location)
    if here is None:
        return _in_the_middle([])
    facing = conjunction([tables.receptacles[receptacle] for receptacle in here])
    # One mention per receptacle of this place that the object was taken out of, sorted by object.
    loose = [
        tables.objects[item]
        for item, receptacle in sorted(state.removed)
        if receptacle in here and (item, state.location) in state.lying
    ]
    return f"You are facing the {facing}. Next to it, you see {listing(loose)}."


def describe(tables: FastGame, state: State, move: Move) -> str:
    """The feedback of `move`, which has just been applied."""
    return _FEEDBACK[move.op](tables, state, move)


def examine_place(tables: FastGame, state: State, move: Move) -> str:
    name = tables.receptacles[move.place]
    inside = listing([tables.objects[item] for item in state.contents[move.place]])
    if move.place not in tables.openable:
        return f"On the {name}, you see {inside}."
    if move.place in state.opened:
        return f"The {name} is open. In it, you see {inside}."
    return f"The {name} is closed."


def examine_item(tables: FastGame, state: State, move: Move) -> str:
    item = move.item
    name = tables.objects[item]
    if item in tables.containers:
        inside = listing([tables.objects[inner] for inner in tables.nested.get(item, ())])
        return f"This is a normal {name}. In it, you see {inside}."
    condition = _condition(state, item)
    if condition:
        return f"This is a {condition} {name}."
    if item in tables.toggleable and item in state.toggled:
        return f"This {name} is on."
    if item in tables.sliceable and item in state.sliced:
        return f"This is a sliced {name}."
    return f"There's nothing special about {name}."


def _condition(state: State, item: int) -> str:
    """Heat and cleanliness in words. "cold" is only said of an object that is neither clean nor sliced."""
    words = []
    if item in state.hot:
        words.append("hot")
    elif item in state.cool:
        words.append("cool" if item in state.clean or item in state.sliced else "cold")
    if item in state.clean:
        words.append("clean")
    condition = " and ".join(words)
    return f"{condition} sliced" if condition and item in state.sliced else condition


def _in_the_middle(names: list[str]) -> str:
    return f"You are in the middle of a room. Looking quickly around you, you see {listing(names)}."


def _inventory(tables: FastGame, state: State, move: Move) -> str:
    if state.held == NOTHING:
        return "You are not carrying anything."
    return f"You are carrying: a {tables.objects[state.held]}."


def _go(tables: FastGame, state: State, move: Move) -> str:
    place = tables.locations[state.location] if tables.verbs is Verbs.PUT else tables.receptacles[move.place]
    return f"You arrive at {place}. {examine_place(tables, state, move)}"


def _open(tables: FastGame, state: State, move: Move) -> str:
    return f"You open the {tables.receptacles[move.place]}. {examine_place(tables, state, move)}"


def _with_names(template: str) -> Callable[[FastGame, State, Move], str]:
    def fill(tables: FastGame, state: State, move: Move) -> str:
        place = tables.receptacles[move.place] if move.place != NOTHING else ""
        return template.format(item=tables.objects[move.item] if move.item != NOTHING else "", place=place)

    return fill


_FEEDBACK: dict[Op, Callable[[FastGame, State, Move], str]] = {
    Op.LOOK: lambda tables, state, move: look(tables, state),
    Op.INVENTORY: _inventory,
    Op.HELP: lambda tables, state, move: help_text(),
    Op.GO: _go,
    Op.EXAMINE_PLACE: examine_place,
    Op.EXAMINE_ITEM: examine_item,
    Op.OPEN: _open,
    Op.CLOSE: _with_names("You close the {place}."),
    Op.TAKE: _with_names("You pick up the {item} from the {place}."),
    Op.PUT: lambda tables, state, move: PUT_FEEDBACK[tables.verbs].format(
        item=tables.objects[move.item], place=tables.receptacles[move.place]
    ),
    Op.CLEAN: _with_names("You clean the {item} using the {place}."),
    Op.HEAT: _with_names("You heat the {item} using the {place}."),
    Op.COOL: _with_names("You cool the {item} using the {place}."),
    Op.USE: _with_names("You turn on the {item}."),
    Op.SLICE: lambda tables, state, move: (
        f"You sliced the {tables.objects[move.item]} with the {tables.objects[state.held]}."
    ),
}


def place_text(tables: FastGame, state: State) -> str:
    """`3 fridge 1 | mug 1 clean | fridge 1`; equal for equal location, held thing and its condition, open doors there.

    Doors elsewhere do not count: after a few of them no two episodes would ever be in the same place.
    """
    here = tables.receptacles_at.get(state.location, ())
    names = [tables.receptacles[receptacle] for receptacle in here]
    opened = [tables.receptacles[receptacle] for receptacle in here if receptacle in state.opened]
    conditions = {"clean": state.clean, "hot": state.hot, "cool": state.cool, "sliced": state.sliced}
    done = [name for name, items in conditions.items() if state.held in items]
    held = "" if state.held == NOTHING else " ".join([tables.objects[state.held], *done])
    return f"{state.location} {', '.join(names)} | {held} | {', '.join(opened)}"


_LOOK, _INVENTORY, _ASK_HELP = Move(Op.LOOK), Move(Op.INVENTORY), Move(Op.HELP)


def legal(tables: FastGame, state: State) -> dict[str, Move]:
    """Every admissible command of `state` with its operator, unordered; none that the game withholds."""
    moves = dict(tables.travel_from(state.location))
    moves["look"] = _LOOK
    moves["inventory"] = _INVENTORY
    if tables.verbs is Verbs.MOVE:
        moves["help"] = _ASK_HELP
    held = state.held
    for receptacle in tables.receptacles_at.get(state.location, ()):
        _at_receptacle(tables, state, receptacle, moves)
    if held != NOTHING:
        name = tables.objects[held]
        moves[f"examine {name}"] = Move(Op.EXAMINE_ITEM, held)
        if held in tables.knives:
            for item in tables.sliceable:
                if (item, state.location) in state.lying:
                    moves[f"slice {tables.objects[item]} with {name}"] = Move(Op.SLICE, item)
    if tables.game.withheld:
        return {command: move for command, move in moves.items() if tables.offer.allows(command)}
    return moves


def _at_receptacle(tables: FastGame, state: State, receptacle: int, moves: dict[str, Move]) -> None:
    place, held = tables.receptacles[receptacle], state.held
    contents = state.contents[receptacle]
    moves[f"examine {place}"] = Move(Op.EXAMINE_PLACE, NOTHING, receptacle)
    shut = False
    if receptacle in tables.openable:
        shut = receptacle not in state.opened
        op = Op.OPEN if shut else Op.CLOSE
        moves[f"{op} {place}"] = Move(op, NOTHING, receptacle)
    for item in contents:
        # A lamp can be switched on through a closed door; taking needs an open one and a free hand.
        if item in tables.toggleable:
            moves[f"use {tables.objects[item]}"] = Move(Op.USE, item, receptacle)
        if held == NOTHING and not shut and item in tables.pickupable:
            moves[f"take {tables.objects[item]} from {place}"] = Move(Op.TAKE, item, receptacle)
    if held == NOTHING:
        return
    name = tables.objects[held]
    if not shut and tables.accepts(receptacle, held):
        moves[PUT_COMMAND[tables.verbs].format(item=name, place=place)] = Move(Op.PUT, held, receptacle)
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
            return state._replace(
                held=item,
                contents=_with_contents(state, place, tuple(i for i in state.contents[place] if i != item)),
                lying=state.lying - {(item, state.location)},
                removed=state.removed | {(item, place)},
            )
        case Op.PUT:
            return state._replace(
                held=NOTHING,
                contents=_with_contents(state, place, tuple(sorted({*state.contents[place], item}))),
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


def _with_contents(state: State, receptacle: int, items: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return (*state.contents[:receptacle], items, *state.contents[receptacle + 1 :])


class FastEngine:
    """`Environment` over shared tables. `snapshot` and `restore` carry hashable states between episodes."""

    def __init__(self, tables: FastGame) -> None:
        self.tables = tables
        self._state = tables.start
        self._moves = legal(tables, self._state)

    def reset(self) -> Observation:
        """Starts the episode again."""
        self.restore(self.tables.start)
        return self._observe(welcome(self.tables, self._state))

    def step(self, action: str) -> Observation:
        """Applies a command; one that is not admissible answers "Nothing happens." and changes nothing."""
        move = self._moves.get(action.strip())
        if move is None:
            return self._observe(NOTHING_HAPPENS)
        self.restore(apply(self.tables, self._state, move))
        return self._observe(describe(self.tables, self._state, move))

    def close(self) -> None:
        """Holds nothing that needs closing."""

    def snapshot(self) -> State:
        return self._state

    def restore(self, state: State) -> None:
        self._state = state
        self._moves = legal(self.tables, state)

    def commands(self) -> tuple[str, ...]:
        """What is admissible now, in the stock engine's order."""
        return tuple(sorted(self._moves))

    def _observe(self, text: str) -> Observation:
        won = self.tables.won(self._state)
        place = place_text(self.tables, self._state)
        return Observation(text=text, commands=self.commands(), won=won, done=won, place=place)
