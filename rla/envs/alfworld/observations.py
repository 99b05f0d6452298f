"""What the agent reads after each operator: pure functions of the tables and the state *after* it."""

from collections.abc import Callable

from rla.envs.alfworld.grammar import PUT_FEEDBACK, WELCOME, conjunction, help_text, listing
from rla.envs.alfworld.problem import Verbs
from rla.envs.alfworld.state import NOTHING, Move, Op, State
from rla.envs.alfworld.tables import FastGame


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
