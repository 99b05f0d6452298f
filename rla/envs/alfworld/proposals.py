"""Edits drawn by rule that make a game harder or easier, each proven, each shifting the effort the asked way.

Effort = plan length + places an agent must look into before it has found what the goal needs, when it goes
through the receptacles by how often their type holds such an object in the training games.
A "where" hint saves the looking; a closed door costs one command more, which the plan length counts.

A rule looks at a game and suggests one change, or none. What it suggests is neither proven nor known to help;
`propose_edits` keeps what is and does. `FOCUSED` says which rules change which phase of an episode. The rules of
`OFFER_HARDER` and `OFFER_EASIER` keep the goal and the scene, and withhold commands or give them back:

    easier   ways to places that the task does not need; `close` and `open` where no plan needs them; the way to a thing
    harder   the way to what would be found first; the way to one of several targets; anything given back that misleads
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

from rla.envs.alfworld import catalog
from rla.envs.alfworld.edit_format import MAX_ITEMS, OFFER_KEYS, SCENE_KEYS, Add, Edit, InvalidEdit, MoveEdit
from rla.envs.alfworld.editing import apply_edit, ids_by_name, unreachable, verify
from rla.envs.alfworld.engine import FastGame
from rla.envs.alfworld.goals import Goal, Hint, TaskKind, hint_of
from rla.envs.alfworld.layout import DEVICES, Layout, layout_of, legal_goals
from rla.envs.alfworld.phases import FINDING, PLACING, TAKING, TREATING
from rla.envs.alfworld.priors import UNLIKELY, share
from rla.envs.alfworld.problem import Game
from rla.envs.alfworld.solver import solve
from rla.envs.alfworld.tables import GO, withheld_place
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


TRIES_PER_EDIT = 10


class Rank(NamedTuple):
    """By what the edits of a game are ordered, least first."""

    hint: bool
    unusual: bool
    other_kind: bool
    other_scene: bool
    other_phase: bool
    effort: int


def view_of(game: Game) -> View:
    """Everything that the rules need to know about `game`."""
    layout = layout_of(game.problem)
    names = {identifier: name for name, identifier in ids_by_name(game.problem).items()}
    beyond = unreachable(game, layout, names)
    order = search_order(layout, game.problem.goal.object_type)
    searched = [place for place in order if place not in beyond]
    return View(
        goal=game.problem.goal,
        hint=hint_of(game.sentence),
        layout=replace(layout, inside=first_found(layout, searched)),
        names=names,
        searched=searched,
        withheld=frozenset(game.withheld),
    )


def search_order(layout: Layout, object_type: str) -> list[str]:
    """Receptacle ids, by falling likelihood of holding an `object_type`; equal ones in fact order."""

    def likelihood(identifier: str) -> float:
        kind = layout.receptacles[identifier]
        fits = (kind, object_type) in layout.can_contain
        return share(object_type, kind) if fits else 0.0

    return sorted(layout.receptacles, key=likelihood, reverse=True)


def first_found(layout: Layout, searched: Sequence[str]) -> dict[str, str]:
    """Object -> the receptacle in which the search comes upon it first."""
    rank = {place: number for number, place in enumerate(searched)}
    return {item: min(places, key=lambda place: rank.get(place, len(rank))) for item, places in layout.homes.items()}


def effort(game: Game, *, plan_length: int) -> int:
    """Commands of the plan plus receptacles looked into before enough instances are found."""
    view = view_of(game)
    if view.hint.tells_where:
        return plan_length
    ranks = sorted(view.searched.index(view.layout.inside[item]) for item in view.instances)
    return plan_length + ranks[: view.needed][-1]


def propose_edits(
    game: Game,
    *,
    direction: str,
    rng: random.Random,
    count: int,
    focus: str = "",
    fields: AbstractSet[str] = SCENE_KEYS,
) -> list[Edit]:
    """At most `count` edits of `game`, all proven by `verify`, that move its effort in `direction`; the first is used.

    The order: no hints (what is changed in the scene is changed for every agent, what is said only for one that heeds
    it); usual edits (what is learnt where things lie as they never do is wrong elsewhere); the same kind of task (or
    the pool drifts to kinds that are short); the goal alone (a scene made easy no longer teaches what is hard in it);
    of the phase in `focus` (of `rla.envs.alfworld.phases`), by whose rules the first half is drawn; least effort left
    (what is never won has far to go, a long search is never won).

    `fields`: the names that an edit may have. Where effort and hints stay, what withholds more is the easier task.
    """
    harder = Direction(direction) is Direction.HARDER
    view = view_of(game)
    before = effort(game, plan_length=_plan_length(game))
    found: dict[str, tuple[Rank, Edit]] = {}
    first, rules = rules_of(Direction(direction), focus, fields)
    halves = [(first, (count + 1) // 2, False), (rules, count, True)] if first else [(rules, count, False)]
    for drawn_by, most, other in halves:
        for edit in _draws(view, drawn_by, rng, tries=TRIES_PER_EDIT * count // len(halves)):
            if len(found) == most:
                break
            text = edit.to_json()
            if text in found or not fields >= edit.keys():
                continue
            try:
                child = apply_edit(game, edit)
                after = effort(child, plan_length=verify(child, parent=game))
            except InvalidEdit:
                continue
            told = _telling(hint_of(child.sentence)) - _telling(view.hint)
            fewer = len(child.withheld) - len(game.withheld)
            if (after, -told, -fewer) > (before, 0, 0) if harder else (after, -told, -fewer) < (before, 0, 0):
                kept = child.problem.goal.kind is view.goal.kind
                scene = bool(edit.moves or edit.adds or edit.removes)
                found[text] = Rank(told != 0, not usual(view, edit), not kept, scene, other, after), edit
    return [edit for _, edit in sorted(found.values(), key=itemgetter(0))]


def rules_of(direction: Direction, focus: str, fields: AbstractSet[str]) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """Those of the phase `focus` and all, of the kinds that may propose edits of these names."""
    harder, phase = direction is Direction.HARDER, (direction, focus)
    first: tuple[Rule, ...] = ()
    rules: tuple[Rule, ...] = ()
    if not SCENE_KEYS.isdisjoint(fields):
        first, rules = FOCUSED.get(phase, ()), HARDER if harder else EASIER
    if not OFFER_KEYS.isdisjoint(fields):
        first += OFFER_FOCUSED.get(phase, ())
        rules += OFFER_HARDER if harder else OFFER_EASIER
    return first, rules


def usual(view: View, edit: Edit) -> bool:
    """Whether all that `edit` places, or asks to place, comes where training games have such things."""
    ids = view.ids
    pairs = [(view.layout.objects[ids[move.item]], move.to) for move in edit.moves]
    pairs += [(add.object_type, add.to) for add in edit.adds]
    placed = [(item, view.layout.receptacles[ids[place]]) for item, place in pairs]
    if edit.goal is not None and edit.goal.kind is not TaskKind.LOOK:
        placed.append((edit.goal.object_type, edit.goal.target_type))
    return all(share(item, place) > UNLIKELY for item, place in placed)


def _plan_length(game: Game) -> int:
    """The plan length of a game that is a task already."""
    plan = solve(FastGame(game))
    if plan is None:
        raise InvalidEdit("the game to change has no plan itself")
    return len(plan)


def _draws(view: View, rules: tuple[Rule, ...], rng: random.Random, *, tries: int) -> Iterator[Edit]:
    for _ in range(tries):
        edit = rng.choice(rules)(view, rng)
        if edit is not None:
            yield edit


def _telling(hint: Hint) -> int:
    return int(hint.tells_where) + int(hint.tells_how)
