"""Edits drawn by rule that make a game harder or easier, each proven, each shifting the effort the asked way.

Effort = plan length + places an agent must look into before it has found what the goal needs, when it goes
through the receptacles by how often their type holds such an object in the training games.
A "where" hint saves the looking; a closed door costs one command more, which the plan length counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rla.envs.alfworld.edit_format import MAX_ITEMS, Add, Edit, InvalidEdit, Move
from rla.envs.alfworld.editing import apply_edit, ids_by_name, verify
from rla.envs.alfworld.engine import FastGame
from rla.envs.alfworld.layout import Layout, layout_of, legal_goals
from rla.envs.alfworld.priors import share
from rla.envs.alfworld.problem import Game, Goal, TaskKind
from rla.envs.alfworld.sentences import Hint, hint_of
from rla.envs.alfworld.solver import solve
from rla.records import Direction

TRIES_PER_EDIT = 10
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
    """A game as the rules look at it. `searched` are receptacle ids, the likeliest home of the object
    first.
    """

    goal: Goal
    hint: Hint
    layout: Layout
    names: dict[str, str]
    searched: list[str]

    @property
    def instances(self) -> list[str]:
        return self.layout.within_reach(self.goal.object_type)

    @property
    def needed(self) -> int:
        return 2 if self.goal.kind is TaskKind.TWO else 1


def view_of(game: Game) -> View:
    """Everything that the rules need to know about `game`."""
    layout = layout_of(game.problem)
    return View(
        goal=game.problem.goal,
        hint=hint_of(game.sentence),
        layout=layout,
        names={identifier: name for name, identifier in ids_by_name(game.problem).items()},
        searched=search_order(layout, game.problem.goal.object_type),
    )


def search_order(layout: Layout, object_type: str) -> list[str]:
    """Receptacle ids, by falling likelihood of holding an `object_type`; equal ones in fact order."""

    def likelihood(identifier: str) -> float:
        kind = layout.receptacles[identifier]
        fits = (kind, object_type) in layout.can_contain
        return share(object_type.lower(), kind.lower()) if fits else 0.0

    return sorted(layout.receptacles, key=likelihood, reverse=True)


def effort(game: Game, *, plan_length: int) -> int:
    """Commands of the plan plus receptacles looked into before enough instances are found."""
    view = view_of(game)
    if view.hint.tells_where:
        return plan_length
    ranks = sorted(view.searched.index(view.layout.inside[item]) for item in view.instances)
    return plan_length + ranks[: view.needed][-1]


def propose_edits(game: Game, *, direction: str, rng: random.Random, count: int) -> list[Edit]:
    """At most `count` edits of `game`, all proven by `verify`, that move its effort in `direction`."""
    harder = Direction(direction) is Direction.HARDER
    view = view_of(game)
    before = effort(game, plan_length=_plan_length(game))
    found: dict[str, Edit] = {}
    for edit in _draws(view, HARDER if harder else EASIER, rng, tries=TRIES_PER_EDIT * count):
        if len(found) == count:
            break
        text = edit.to_json()
        if text in found:
            continue
        try:
            child = apply_edit(game, edit)
            after = effort(child, plan_length=verify(child, parent=game))
        except InvalidEdit:
            continue
        told = _telling(hint_of(child.sentence)) - _telling(view.hint)
        if (after, -told) > (before, 0) if harder else (after, -told) < (before, 0):
            found[text] = edit
    return list(found.values())


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
    fitting = [place for place in view.searched if _fits(view, place)]
    late = fitting[len(fitting) // 2 :]
    return [place for place in late if view.layout.closed(place)] or late


def _fits(view: View, place: str) -> bool:
    kind = view.layout.receptacles[place]
    return kind != view.goal.target_type and (kind, view.goal.object_type) in view.layout.can_contain


def _into(view: View, items: list[str], homes: list[str], rng: random.Random) -> tuple[Move, ...]:
    return tuple(Move(item=view.names[item], to=view.names[rng.choice(homes)]) for item in items)


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


SHARED: tuple[Rule, ...] = (_other_object, _other_target, _other_task)
HARDER: tuple[Rule, ...] = (_hide, _hide_few, _thin, _longer, _tell_less, *SHARED)
EASIER: tuple[Rule, ...] = (_expose, _multiply, _shorter, _tell_more, *SHARED)
