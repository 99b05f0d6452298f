"""The rules by which edits are drawn: each looks at a game and suggests one change, or none.

What a rule suggests is neither proven nor known to help; `proposals` keeps what is and does. `FOCUSED` says which
rules change which phase of an episode.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from rla.envs.alfworld import catalog
from rla.envs.alfworld.edit_format import MAX_ITEMS, Add, Edit, MoveEdit
from rla.envs.alfworld.layout import Layout, legal_goals
from rla.envs.alfworld.phases import FINDING, PLACING, TAKING, TREATING
from rla.envs.alfworld.priors import share
from rla.envs.alfworld.problem import Goal, TaskKind
from rla.envs.alfworld.sentences import Hint
from rla.store.records import Direction

LENGTH: dict[TaskKind, int] = {
    TaskKind.PLACE: 0,
    TaskKind.LOOK: 0,
    TaskKind.CLEAN: 1,
    TaskKind.HEAT: 1,
    TaskKind.COOL: 1,
    TaskKind.TWO: 2,
}
"""Kinds by how many commands their shortest plans need."""

Rule = Callable[["View", random.Random], Edit | None]


@dataclass(frozen=True, slots=True)
class View:
    """A game as the rules look at it. `searched` are ids of the receptacles that one can get at, the likeliest home of
    the object first. `withheld`: commands that are not offered.
    """

    goal: Goal
    hint: Hint
    layout: Layout
    names: dict[str, str]
    searched: list[str]
    withheld: frozenset[str] = frozenset()

    @property
    def ids(self) -> dict[str, str]:
        return {name: identifier for identifier, name in self.names.items()}

    @property
    def instances(self) -> list[str]:
        """Ids of the objects asked for that one can get at."""
        found = self.layout.within_reach(self.goal.object_type)
        return [item for item in found if self.layout.inside[item] in self.searched] if self.withheld else found

    @property
    def needed(self) -> int:
        return 2 if self.goal.kind is TaskKind.TWO else 1


def elsewhere(view: View, rng: random.Random) -> Edit | None:
    """All instances into places drawn by how often training games have them there."""
    if len(view.instances) > MAX_ITEMS or not (homes := _homes(view)):
        return None
    weights = [share(view.goal.object_type, view.layout.receptacles[place]) for place in homes]
    drawn = rng.choices(homes, weights, k=len(view.instances))
    return Edit(
        moves=tuple(
            MoveEdit(item=view.names[i], to=view.names[to]) for i, to in zip(view.instances, drawn, strict=True)
        )
    )


def _hide(view: View, rng: random.Random) -> Edit | None:
    """All instances into places of the second half of the search, behind doors where there are any."""
    if len(view.instances) > MAX_ITEMS or not (homes := _late(view)):
        return None
    return Edit(moves=_into(view, view.instances, homes, rng))


def _hide_few(view: View, rng: random.Random) -> Edit | None:
    """As many instances as the goal needs, hidden, and no others."""
    spare = len(view.instances) - view.needed
    homes = _late(view)
    if not 1 <= spare <= MAX_ITEMS or not homes:
        return None
    shuffled = rng.sample(view.instances, len(view.instances))
    kept, gone = shuffled[: view.needed], shuffled[view.needed :]
    return Edit(moves=_into(view, kept, homes, rng), removes=tuple(view.names[item] for item in gone))


def _late(view: View) -> list[str]:
    homes = _homes(view)
    late = homes[len(homes) // 2 :]
    return [place for place in late if view.layout.closed(place)] or late


def _homes(view: View) -> list[str]:
    """Where an instance may lie that is not at its target, in the order of the search."""
    return [place for place in view.searched if _fits(view, place)]


def _fits(view: View, place: str) -> bool:
    kind = view.layout.receptacles[place]
    return kind != view.goal.target_type and (kind, view.goal.object_type) in view.layout.can_contain


def _into(view: View, items: list[str], homes: list[str], rng: random.Random) -> tuple[MoveEdit, ...]:
    return tuple(MoveEdit(item=view.names[item], to=view.names[rng.choice(homes)]) for item in items)


def _thin(view: View, rng: random.Random) -> Edit | None:
    """Fewer duplicates of the goal's object: just as many as it needs."""
    spare = len(view.instances) - view.needed
    if spare < 1:
        return None
    gone = rng.sample(view.instances, min(spare, MAX_ITEMS))
    return Edit(removes=tuple(view.names[item] for item in gone))


def _longer(view: View, rng: random.Random) -> Edit | None:
    return _other_kind(view, rng, longer=True)


def _shorter(view: View, rng: random.Random) -> Edit | None:
    return _other_kind(view, rng, longer=False)


def _other_kind(view: View, rng: random.Random, *, longer: bool) -> Edit | None:
    """Another kind of task with the same object, preferably to the same target."""
    sign = 1 if longer else -1
    kinds = [kind for kind in TaskKind if sign * LENGTH[kind] > sign * LENGTH[view.goal.kind]]
    goals = [
        goal for kind in kinds for goal in legal_goals(kind, view.layout) if goal.object_type == view.goal.object_type
    ]
    same = [goal for goal in goals if goal.target_type == view.goal.target_type]
    return Edit(goal=rng.choice(same or goals)) if goals else None


def _other_object(view: View, rng: random.Random) -> Edit | None:
    """The same kind of task with another object; whether it is rarer or commoner, the effort tells."""
    goals = [
        goal
        for goal in legal_goals(view.goal.kind, view.layout)
        if goal.target_type == view.goal.target_type and goal.object_type != view.goal.object_type
    ]
    return Edit(goal=rng.choice(goals)) if goals else None


def _other_target(view: View, rng: random.Random) -> Edit | None:
    goals = [
        goal
        for goal in legal_goals(view.goal.kind, view.layout)
        if goal.object_type == view.goal.object_type and goal != view.goal
    ]
    return Edit(goal=rng.choice(goals)) if goals else None


def _other_task(view: View, rng: random.Random) -> Edit | None:
    """Another task of the same scene, of any kind; the last resort where nothing else can change."""
    goals = [goal for kind in TaskKind for goal in legal_goals(kind, view.layout) if goal != view.goal]
    return Edit(goal=rng.choice(goals)) if goals else None


def _tell_less(view: View, rng: random.Random) -> Edit | None:
    less = {
        Hint.WHERE_AND_HOW: (Hint.HOW, Hint.WHERE, Hint.NONE),
        Hint.WHERE: (Hint.NONE,),
        Hint.HOW: (Hint.NONE,),
    }
    return Edit(hint=rng.choice(less[view.hint])) if view.hint in less else None


def _tell_more(view: View, rng: random.Random) -> Edit | None:
    more = {
        Hint.NONE: (Hint.WHERE, Hint.HOW, Hint.WHERE_AND_HOW),
        Hint.WHERE: (Hint.WHERE_AND_HOW,),
        Hint.HOW: (Hint.WHERE_AND_HOW,),
    }
    return Edit(hint=rng.choice(more[view.hint])) if view.hint in more else None


def _tell_where(view: View, rng: random.Random) -> Edit | None:
    if view.hint.tells_where:
        return None
    return Edit(hint=Hint.WHERE_AND_HOW if view.hint.tells_how else Hint.WHERE)


def _tell_how(view: View, rng: random.Random) -> Edit | None:
    if view.hint.tells_how:
        return None
    return Edit(hint=Hint.WHERE_AND_HOW if view.hint.tells_where else Hint.HOW)


def _early_and_open(view: View) -> list[str]:
    """Open receptacles in the first half of the search that are not the target's type."""
    early = view.searched[: max(1, len(view.searched) // 2)]
    return [place for place in early if not view.layout.closed(place) and _fits(view, place)]


def _expose(view: View, rng: random.Random) -> Edit | None:
    """As many instances as are needed onto open receptacles that are looked into early."""
    homes = _early_and_open(view)
    if not homes or len(view.instances) < view.needed:
        return None
    return Edit(moves=_into(view, rng.sample(view.instances, view.needed), homes, rng))


def _multiply(view: View, rng: random.Random) -> Edit | None:
    """More instances on an open receptacle."""
    homes = _early_and_open(view)
    if not homes:
        return None
    add = Add(object_type=view.goal.object_type, to=view.names[rng.choice(homes)], count=rng.randint(1, 2))
    return Edit(adds=(add,))


def _decoy(view: View, rng: random.Random) -> Edit | None:
    """What is needed hidden, and where one looks first something else of the room that fits the target, too."""
    hidden = _hide(view, rng)
    homes = _early_and_open(view)
    kinds = sorted(
        kind
        for place, kind in view.layout.can_contain
        if place == view.goal.target_type and kind != view.goal.object_type and kind in view.layout.objects.values()
    )
    if hidden is None or not homes or not kinds:
        return None
    decoys = Add(object_type=rng.choice(kinds), to=view.names[rng.choice(homes)], count=rng.randint(1, 2))
    return replace(hidden, adds=(decoys,))


def _clear(view: View, rng: random.Random) -> Edit | None:
    """What is needed into the open, and what else may be picked up there gone."""
    shown = _expose(view, rng)
    if shown is None:
        return None
    ids = view.ids
    places = {ids[move.to] for move in shown.moves}
    others = [item for item, place in view.layout.inside.items() if place in places and _distracts(view, item)]
    gone = tuple(view.names[item] for item in others[:MAX_ITEMS])
    return replace(shown, removes=gone) if gone else None


def _distracts(view: View, item: str) -> bool:
    kind = view.layout.objects.get(item)
    movable = kind is not None and kind not in catalog.FIXED and view.layout.flag("pickupable", item)
    return movable and kind != view.goal.object_type and item in view.names


SHARED: tuple[Rule, ...] = (_other_object, _other_target, _other_task)
HARDER: tuple[Rule, ...] = (elsewhere, _hide, _hide_few, _decoy, _thin, _longer, _tell_less, *SHARED)
EASIER: tuple[Rule, ...] = (_expose, _clear, _multiply, _shorter, _tell_more, *SHARED)
FOCUSED: dict[tuple[Direction, str], tuple[Rule, ...]] = {
    (Direction.HARDER, FINDING): (_other_object, elsewhere, _hide, _hide_few, _decoy, _thin),
    (Direction.HARDER, TAKING): (_other_object, _decoy, _thin, _tell_less),
    (Direction.HARDER, TREATING): (_other_object, _tell_less, _longer),
    (Direction.HARDER, PLACING): (_other_target, _longer, _tell_less),
    (Direction.EASIER, FINDING): (_other_object, _tell_where, _expose, _multiply),
    (Direction.EASIER, TAKING): (_other_object, _tell_how, _clear, _multiply),
    (Direction.EASIER, TREATING): (_other_object, _tell_how, _shorter),
    (Direction.EASIER, PLACING): (_other_target, _tell_how, _shorter),
}
"""Per direction and phase to change, the rules that change it."""
