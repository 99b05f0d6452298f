"""What a game offers after an edit that withholds commands or gives them back; the goal and the scene stay.

`changed_offer` refuses what would change nothing: to withhold what is withheld or what the scene never offers, and to
give what is not withheld. That the game can still be won, the solver proves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rla.envs.alfworld.commands import withheld_place
from rla.envs.alfworld.edit_format import Edit, InvalidEdit
from rla.envs.alfworld.layout import Layout
from rla.envs.alfworld.problem import Game, Verbs

TREATING = {
    "clean": ("cleanable", ("SinkBasin", "Sink")),
    "heat": ("heatable", ("Microwave",)),
    "cool": ("coolable", ("Fridge",)),
}
KNIVES = ("Knife", "ButterKnife")


def changed_offer(game: Game, edit: Edit, *, ids: Mapping[str, str], layout: Layout) -> tuple[str, ...]:
    """The commands that the game withholds after the edit, sorted. Raises `InvalidEdit`."""
    before, taken, given = set(game.withheld), edit.withhold, edit.give
    if len({*taken, *given}) != len(taken) + len(given):
        raise InvalidEdit("a command is withheld or given twice")
    if not before.issuperset(given):
        raise InvalidEdit("a command is given that is not withheld")
    if not before.isdisjoint(taken):
        raise InvalidEdit("a command is withheld that is withheld already")
    for command in taken:
        refuse_unoffered(game, command, ids=ids, layout=layout)
    names = {identifier: name for name, identifier in ids.items()}
    barred = [barred_places([command], layout, names) for command in (*before, *taken)]
    if sum(map(len, barred)) > len(set().union(*barred)):
        raise InvalidEdit("a way is withheld to a place that shares its location with one that is withheld")
    return tuple(sorted(before.union(taken).difference(given)))


def refuse_unoffered(game: Game, command: str, *, ids: Mapping[str, str], layout: Layout) -> None:
    """`InvalidEdit` where the scene never offers the command, or the agent stands at the place from the start."""
    place = withheld_place(command)
    if place is None:
        if not occurs(game, command, layout):
            raise InvalidEdit("a command is withheld that this scene never offers")
        return
    receptacle = ids.get(place)
    if receptacle is None or receptacle not in layout.receptacles:
        raise InvalidEdit(f"there is no receptacle {place} in the scene")
    start = {fact[2] for fact in game.problem.facts if fact[0] == "atLocation"}
    if receptacle not in layout.location or layout.location[receptacle] in start:
        raise InvalidEdit(f"{place} has no location in the scene, or the agent stands there")


def occurs(game: Game, kind: str, layout: Layout) -> bool:
    """Whether the scene may ever offer a command of this kind."""
    flags = {name for name, _ in layout.flags}
    match kind:
        case "help":
            return game.verbs is Verbs.MOVE
        case "open" | "close":
            return "openable" in flags
        case "use":
            return "toggleable" in flags
        case "slice":
            return "sliceable" in flags and any(kind in KNIVES for kind in layout.objects.values())
        case "clean" | "heat" | "cool":
            able, devices = TREATING[kind]
            return able in flags and any(device in devices for device in layout.receptacles.values())
    return True


def unreachable(game: Game, layout: Layout, names: Mapping[str, str]) -> frozenset[str]:
    """Ids of the receptacles whose contents nobody gets at: barred, or shut where opening is withheld.

    `names`: id -> player's name.
    """
    if not game.withheld:
        return frozenset()
    barred = barred_places(game.withheld, layout, names)
    sealed = {place for place in layout.receptacles if layout.closed(place)} if "open" in game.withheld else set()
    return frozenset(barred | sealed)


def barred_places(commands: Collection[str], layout: Layout, names: Mapping[str, str]) -> set[str]:
    """Ids of the receptacles that nobody can go to, with those that share a location with one of them."""
    named = {place for place in map(withheld_place, commands) if place is not None}
    there = {layout.location[place] for place in layout.receptacles if names.get(place) in named} if named else set()
    return {place for place in layout.receptacles if layout.location.get(place) in there}
