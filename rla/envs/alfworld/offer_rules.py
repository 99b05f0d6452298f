"""Rules that keep the goal and the scene, and change what is offered: commands withheld, or given back.

    easier   ways to places that the task does not need; `close` and `open` where no plan needs them; the way to a thing
    harder   the way to what would be found first; the way to one of several targets; anything given back that misleads

As in `rules`, a rule suggests and proves nothing.
"""

from __future__ import annotations

import random

from rla.envs.alfworld.commands import GO, withheld_place
from rla.envs.alfworld.edit_format import MAX_ITEMS, Edit
from rla.envs.alfworld.goals import TaskKind
from rla.envs.alfworld.layout import DEVICES
from rla.envs.alfworld.phases import FINDING, PLACING, TAKING, TREATING
from rla.envs.alfworld.rules import Rule, View
from rla.store.records import Direction


def _bar_needless(view: View, rng: random.Random) -> Edit | None:
    """Ways to places without anything that the task needs."""
    kept = {view.layout.location.get(place) for place in _needed_places(view)}
    spare = [place for place in view.searched if view.layout.location.get(place) not in kept]
    if not spare:
        return None
    drawn = rng.sample(spare, rng.randint(1, min(len(spare), MAX_ITEMS)))
    return Edit(withhold=_ways(view, drawn))


def _needed_places(view: View) -> set[str]:
    """Where instances lie, targets, and what treats them."""
    goal, layout = view.goal, view.layout
    places = {layout.inside[item] for item in view.instances}
    if goal.kind is TaskKind.LOOK:
        return places | {layout.inside[item] for item in layout.inside if layout.objects.get(item) == goal.target_type}
    places.update(layout.of_type(goal.target_type))
    if goal.kind in DEVICES:
        places.update(layout.of_type(DEVICES[goal.kind][1]))
    return places


def _ways(view: View, places: list[str]) -> tuple[str, ...]:
    """The ways to these places, one for each location."""
    known = {view.layout.location.get(place): place for place in reversed(places)}
    return tuple(sorted(GO + view.names[place] for place in known.values()))


def _no_closing(view: View, rng: random.Random) -> Edit | None:
    return None if "close" in view.withheld else Edit(withhold=("close",))


def _no_opening(view: View, rng: random.Random) -> Edit | None:
    return None if "open" in view.withheld else Edit(withhold=("open",))


def _bar_first(view: View, rng: random.Random) -> Edit | None:
    """The ways to the instances that would be found first: as few as needed are left."""
    order = sorted(view.instances, key=lambda item: view.searched.index(view.layout.inside[item]))
    if len(order) <= view.needed:
        return None
    count = rng.randint(1, min(len(order) - view.needed, MAX_ITEMS))
    places = list(dict.fromkeys(view.layout.inside[item] for item in order[:count]))
    return Edit(withhold=_ways(view, places))


def _bar_target(view: View, rng: random.Random) -> Edit | None:
    """The way to one of several targets."""
    targets = [place for place in view.searched if view.layout.receptacles[place] == view.goal.target_type]
    return Edit(withhold=_ways(view, [rng.choice(targets)])) if len(targets) > 1 else None


def _give_any(view: View, rng: random.Random) -> Edit | None:
    return Edit(give=(rng.choice(sorted(view.withheld)),)) if view.withheld else None


def _give_way(view: View, rng: random.Random) -> Edit | None:
    """The way to a place that holds what the task needs."""
    items = view.layout.within_reach(view.goal.object_type)
    places = {view.names[place] for item in items for place in view.layout.homes[item]}
    ways = sorted(command for command in view.withheld if withheld_place(command) in places)
    return Edit(give=(rng.choice(ways),)) if ways else None


OFFER_HARDER: tuple[Rule, ...] = (_bar_first, _bar_target, _give_any)
OFFER_EASIER: tuple[Rule, ...] = (_bar_needless, _bar_needless, _no_closing, _no_opening, _give_way)
OFFER_FOCUSED: dict[tuple[Direction, str], tuple[Rule, ...]] = {
    (Direction.HARDER, FINDING): (_bar_first, _give_any),
    (Direction.HARDER, TAKING): (_bar_first,),
    (Direction.HARDER, TREATING): (_bar_first, _bar_target),
    (Direction.HARDER, PLACING): (_bar_target, _give_any),
    (Direction.EASIER, FINDING): (_bar_needless, _give_way),
    (Direction.EASIER, TAKING): (_bar_needless, _no_closing),
    (Direction.EASIER, TREATING): (_bar_needless, _no_opening),
    (Direction.EASIER, PLACING): (_bar_needless, _no_opening),
}
