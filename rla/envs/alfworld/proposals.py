"""Edits drawn by rule that make a game harder or easier, each proven, each shifting the effort the asked way.

Effort = plan length + places an agent must look into before it has found what the goal needs, when it goes
through the receptacles by how often their type holds such an object in the training games.
A "where" hint saves the looking; a closed door costs one command more, which the plan length counts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from rla.envs.alfworld.edit_format import OFFER_KEYS, SCENE_KEYS, Edit, InvalidEdit
from rla.envs.alfworld.editing import apply_edit, ids_by_name, verify
from rla.envs.alfworld.engine import FastGame
from rla.envs.alfworld.layout import Layout, layout_of
from rla.envs.alfworld.offer_rules import OFFER_EASIER, OFFER_FOCUSED, OFFER_HARDER
from rla.envs.alfworld.offering import unreachable
from rla.envs.alfworld.priors import UNLIKELY, share
from rla.envs.alfworld.problem import Game, TaskKind
from rla.envs.alfworld.rules import EASIER, FOCUSED, HARDER, Rule, View
from rla.envs.alfworld.sentences import Hint, hint_of
from rla.envs.alfworld.solver import solve
from rla.store.records import Direction

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
