"""The fast engine: ALFRED's PDDL domain as a state machine over integers, byte-identical to TextWorld's.

`legal` lists a state's ground operators by command, `apply` is the transition, both pure. `FastEngine` is the
environment around them. Loading takes milliseconds and a step some tens of microseconds.
"""

from __future__ import annotations

from rla.envs.alfworld.grammar import NOTHING_HAPPENS, PUT_COMMAND
from rla.envs.alfworld.observations import describe, welcome
from rla.envs.alfworld.places import place_text
from rla.envs.alfworld.problem import Verbs
from rla.envs.alfworld.state import NOTHING, Move, Op, State
from rla.envs.alfworld.tables import FastGame
from rla.envs.observation import Observation

__all__ = ["FastEngine", "FastGame", "Move", "Op", "State", "apply", "legal"]

_LOOK, _INVENTORY, _HELP = Move(Op.LOOK), Move(Op.INVENTORY), Move(Op.HELP)


def legal(tables: FastGame, state: State) -> dict[str, Move]:
    """Every admissible command of `state` with its operator, unordered; none that the game withholds."""
    moves = dict(tables.travel_from(state.location))
    moves["look"] = _LOOK
    moves["inventory"] = _INVENTORY
    if tables.verbs is Verbs.MOVE:
        moves["help"] = _HELP
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
