"""Edits drawn by rule that make a game harder or easier. Each is proven and shifts the effort in the asked direction.

Effort = plan length + receptacles that an agent looks into before it has found the objects that the goal needs, if it
searches by how often their types hold such an object in the training games. A "where" hint saves the search; a closed
door costs one more command, which the plan length counts.

A rule looks at a game and suggests one change, or None. Suggestions are neither proven nor known to help;
`propose_edits` keeps the good ones. A `Course` tells in which phase of a task its episodes ended, and `_RULES` which
rules change that phase:

    finding   until an object of the goal's type has been seen     treating  until one was cleaned, heated or cooled
    taking    until one was picked up                              placing   until the end (LOOK: the lamp)
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from rla.envs.alfworld.catalog import UNLIKELY, share
from rla.envs.alfworld.edits import EDIT_KEYS, MAX_ITEMS, Edit, apply_edit, verify
from rla.envs.alfworld.engine import FastGame
from rla.envs.alfworld.game import Game, Layout
from rla.envs.alfworld.goals import TREATMENTS, Goal, Hint, TaskKind
from rla.envs.alfworld.solver import solve
from rla.envs.protocols import Course, Phase, RejectedEdit
from rla.store.records import Direction

_HARDER, _EASIER = Direction.HARDER, Direction.EASIER
FINDING, TAKING, TREATING, PLACING = "finding", "taking", "treating", "placing"
_TRIES_PER_EDIT = 10
_LENGTH = {kind: 1 if kind in TREATMENTS else 2 * (kind is TaskKind.TWO) for kind in TaskKind}  # of shortest plans
_PLACED = {TaskKind.LOOK: "getting light on the {item}", TaskKind.TWO: "getting both {item}s to a {target}"}


def game_course(goal: Goal, episodes: Sequence[Mapping[str, Any]]) -> Course:
    """The course of trajectories of one task, each with outcome, steps (observation, action), final_observation."""
    names = {FINDING: f"finding a {goal.item}", TAKING: f"taking a {goal.item}"}
    if goal.kind in TREATMENTS:
        names[TREATING] = f"{TREATMENTS[goal.kind].verb}ing the {goal.item}"
    names[PLACING] = goal.filled(_PLACED.get(goal.kind, "putting the {item} into a {target}"))
    ended: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    for episode in episodes:
        phases = _phases(goal, list(names), episode)
        steps.update(phases[:-1])
        spent.update(step["action"].split(" ", 1)[0] for step in episode["steps"])
        if episode["outcome"] != 1:
            ended[phases[-1]] += 1
    return Course(
        episodes=len(episodes),
        won=sum(episode["outcome"] == 1 for episode in episodes),
        phases=tuple(
            Phase(name=name, about=about, ended=ended[name], steps=steps[name]) for name, about in names.items()
        ),
        spent=tuple(sorted(spent.items(), key=lambda entry: (-entry[1], entry[0]))),
    )


def _phases(goal: Goal, left: list[str], episode: Mapping[str, Any]) -> list[str]:
    """The phase of each step, followed by the last phase of the episode."""
    treat = TREATMENTS[goal.kind].verb if goal.kind in TREATMENTS else ""
    done = {
        FINDING: re.compile(rf"\b{re.escape(goal.item)} \d"),
        TAKING: re.compile(rf"\AYou pick up the {re.escape(goal.item)} "),
        TREATING: re.compile(rf"\AYou {treat} the {re.escape(goal.item)} "),
        PLACING: re.compile(r"(?!)"),  # never: it lasts until the end
    }
    texts = [*(step["observation"] for step in episode["steps"]), episode["final_observation"]]
    found = [left[0]]
    for _, text in pairwise(texts):
        while done[left[0]].search(text.strip()):
            left.pop(0)
        found.append(left[0])
    return found


@dataclass(frozen=True, slots=True)
class View:
    """A game as the rules look at it.

    `searched`: ids of the receptacles, the likeliest place of the object first. `instances`: ids of the wanted objects.
    """

    goal: Goal
    hint: Hint
    layout: Layout
    searched: list[str]
    instances: list[str]

    @classmethod
    def of(cls, game: Game) -> View:
        layout, goal = Layout.of(game.problem), game.problem.goal

        def likelihood(place: str) -> float:
            kind = layout.receptacles[place]
            return share(goal.object_type, kind) if (kind, goal.object_type) in layout.can_contain else 0.0

        searched = sorted(layout.receptacles, key=likelihood, reverse=True)
        # An object in several receptacles counts as being in the first of them that the search finds.
        inside = {item: min(homes, key=searched.index) for item, homes in layout.homes.items()}
        layout = replace(layout, inside=inside)
        return cls(goal, Hint.of(game.sentence), layout, searched, layout.within_reach(goal.object_type))

    def homes(self) -> list[str]:
        """Places for a wanted object except targets, in the order of the search."""
        return [place for place in self.searched if self._fits(place)]

    def late(self) -> list[str]:
        """The second half of the homes, only those behind doors if there are any."""
        homes = self.homes()
        late = homes[len(homes) // 2 :]
        return [place for place in late if self.layout.closed(place)] or late

    def early(self) -> list[str]:
        """Open homes in the first half of the search."""
        early = self.searched[: max(1, len(self.searched) // 2)]
        return [place for place in early if not self.layout.closed(place) and self._fits(place)]

    def moves(self, items: Sequence[str], places: Sequence[str]) -> list[dict[str, str]]:
        names = self.layout.names
        return [{"object": names[item], "to": names[place]} for item, place in zip(items, places, strict=True)]

    def effort(self, plan_length: int) -> int:
        """Commands of the plan plus receptacles looked into before enough instances are found."""
        if "where" in self.hint.parts:
            return plan_length
        ranks = sorted(self.searched.index(self.layout.inside[item]) for item in self.instances)
        return plan_length + ranks[: self.goal.needed][-1]

    def usual(self, edit: Edit) -> bool:
        """Whether all receptacles that `edit` puts objects into, or asks for, hold such objects in training games."""
        layout, ids = self.layout, self.layout.ids
        pairs = [(layout.objects[ids[move["object"]]], move["to"]) for move in edit.get("move", ())]
        pairs += [(add["object_type"], add["to"]) for add in edit.get("add", ())]
        placed = [(item, layout.receptacles[ids[place]]) for item, place in pairs]
        if "goal" in edit and edit["goal"]["kind"] != TaskKind.LOOK:
            placed.append((edit["goal"]["object_type"], edit["goal"]["target_type"]))
        return all(share(item, place) > UNLIKELY for item, place in placed)

    def _fits(self, place: str) -> bool:
        kind = self.layout.receptacles[place]
        return kind != self.goal.target_type and (kind, self.goal.object_type) in self.layout.can_contain


_Rule = Callable[[View, random.Random], Edit | None]


def elsewhere(view: View, rng: random.Random) -> Edit | None:
    """Move all instances to places drawn by how often training games have them there."""
    if len(view.instances) > MAX_ITEMS or not (homes := view.homes()):
        return None
    weights = [share(view.goal.object_type, view.layout.receptacles[place]) for place in homes]
    return {"move": view.moves(view.instances, rng.choices(homes, weights, k=len(view.instances)))}


def _hide(view: View, rng: random.Random) -> Edit | None:
    """Move all instances to places late in the search."""
    if len(view.instances) > MAX_ITEMS or not (homes := view.late()):
        return None
    return {"move": view.moves(view.instances, [rng.choice(homes) for _ in view.instances])}


def _hide_few(view: View, rng: random.Random) -> Edit | None:
    """Hide as many instances as the goal needs and remove the others."""
    needed, homes = view.goal.needed, view.late()
    if not 1 <= len(view.instances) - needed <= MAX_ITEMS or not homes:
        return None
    shuffled = rng.sample(view.instances, len(view.instances))
    moves = view.moves(shuffled[:needed], [rng.choice(homes) for _ in range(needed)])
    return {"move": moves, "remove": [{"object": view.layout.names[item]} for item in shuffled[needed:]]}


def _thin(view: View, rng: random.Random) -> Edit | None:
    """Remove the instances that the goal does not need."""
    spare = len(view.instances) - view.goal.needed
    if spare < 1:
        return None
    gone = rng.sample(view.instances, min(spare, MAX_ITEMS))
    return {"remove": [{"object": view.layout.names[item]} for item in gone]}


def _other_kind(view: View, rng: random.Random, *, sign: int) -> Edit | None:
    """A kind of task with longer (`sign` 1) or shorter plans (-1), the same object, and preferably the same target."""
    kinds = [kind for kind in TaskKind if sign * _LENGTH[kind] > sign * _LENGTH[view.goal.kind]]
    goals = [goal for kind in kinds for goal in view.layout.legal_goals(kind)]
    goals = [goal for goal in goals if goal.object_type == view.goal.object_type]
    same = [goal for goal in goals if goal.target_type == view.goal.target_type]
    return {"goal": asdict(rng.choice(same or goals))} if goals else None


def _other_goal(view: View, rng: random.Random, *, kept: Sequence[str] = ()) -> Edit | None:
    """Another goal of the scene that equals the present one in the fields `kept`."""
    now = view.goal
    goals = [
        goal
        for kind in ([now.kind] if "kind" in kept else TaskKind)
        for goal in view.layout.legal_goals(kind)
        if goal != now and all(getattr(goal, name) == getattr(now, name) for name in kept)
    ]
    return {"goal": asdict(rng.choice(goals))} if goals else None


def _tell_less(view: View, rng: random.Random) -> Edit | None:
    less = [hint for hint in reversed(Hint) if hint.parts < view.hint.parts]
    return {"hint": rng.choice(less)} if less else None


def _tell_more(view: View, rng: random.Random) -> Edit | None:
    more = [hint for hint in Hint if hint.parts > view.hint.parts]
    return {"hint": rng.choice(more)} if more else None


def _tell(view: View, rng: random.Random, *, part: str) -> Edit | None:
    hint = Hint.telling(view.hint.parts | {part})
    return None if hint is view.hint else {"hint": hint}


def _expose(view: View, rng: random.Random) -> Edit | None:
    """Move as many instances as are needed onto open receptacles early in the search."""
    homes, needed = view.early(), view.goal.needed
    if not homes or len(view.instances) < needed:
        return None
    items = rng.sample(view.instances, needed)
    return {"move": view.moves(items, [rng.choice(homes) for _ in items])}


def _multiply(view: View, rng: random.Random) -> Edit | None:
    """Add instances on an open receptacle."""
    if not (homes := view.early()):
        return None
    to = view.layout.names[rng.choice(homes)]
    return {"add": [{"object_type": view.goal.object_type, "to": to, "count": rng.randint(1, 2)}]}


def _decoy(view: View, rng: random.Random) -> Edit | None:
    """Hide the instances, and add other objects that fit the target at the beginning of the search."""
    hidden, homes = _hide(view, rng), view.early()
    present = view.layout.objects.values()
    kinds = sorted(
        kind
        for place, kind in view.layout.can_contain
        if place == view.goal.target_type and kind != view.goal.object_type and kind in present
    )
    if hidden is None or not homes or not kinds:
        return None
    kind, to = rng.choice(kinds), view.layout.names[rng.choice(homes)]
    return {**hidden, "add": [{"object_type": kind, "to": to, "count": rng.randint(1, 2)}]}


def _clear(view: View, rng: random.Random) -> Edit | None:
    """Expose the instances, and remove the other movable objects from there."""
    shown = _expose(view, rng)
    if shown is None:
        return None
    layout, wanted = view.layout, view.goal.object_type
    places = {layout.ids[move["to"]] for move in shown["move"]}
    gone = [
        {"object": layout.names[item]}
        for item, place in layout.inside.items()
        if place in places and item in layout.names and layout.movable(item) and layout.objects[item] != wanted
    ]
    return {**shown, "remove": gone[:MAX_ITEMS]} if gone else None


_longer, _shorter = partial(_other_kind, sign=1), partial(_other_kind, sign=-1)
_other_object = partial(_other_goal, kept=("kind", "target_type"))
_other_target = partial(_other_goal, kept=("kind", "object_type"))
_other: tuple[_Rule, ...] = (_other_object, _other_target, _other_goal)
_tell_where, _tell_how = partial(_tell, part="where"), partial(_tell, part="how")

# The rules per direction and phase ("": all phases).
_RULES: dict[tuple[Direction, str], tuple[_Rule, ...]] = {
    (_HARDER, ""): (elsewhere, _hide, _hide_few, _decoy, _thin, _longer, _tell_less, *_other),
    (_HARDER, FINDING): (_other_object, elsewhere, _hide, _hide_few, _decoy, _thin),
    (_HARDER, TAKING): (_other_object, _decoy, _thin, _tell_less),
    (_HARDER, TREATING): (_other_object, _tell_less, _longer),
    (_HARDER, PLACING): (_other_target, _longer, _tell_less),
    (_EASIER, ""): (_expose, _clear, _multiply, _shorter, _tell_more, *_other),
    (_EASIER, FINDING): (_other_object, _tell_where, _expose, _multiply),
    (_EASIER, TAKING): (_other_object, _tell_how, _clear, _multiply),
    (_EASIER, TREATING): (_other_object, _tell_how, _shorter),
    (_EASIER, PLACING): (_other_target, _tell_how, _shorter),
}


class _Rank(NamedTuple):
    """The order of the edits of a game, least first."""

    hint: bool  # a changed scene changes for every agent, a hint only for one that heeds it
    unusual: bool  # an agent that learns unusual places is misled in other tasks
    other_kind: bool  # otherwise the pool drifts to kinds with short plans
    other_scene: bool  # a scene that was made easy no longer teaches the hard part
    other_phase: bool
    effort: int  # a task that is never won has far to go, and a long search is never won


def propose_edits(
    game: Game,
    *,
    direction: str,
    rng: random.Random,
    count: int,
    focus: str = "",
    keys: AbstractSet[str] = EDIT_KEYS,
) -> list[Edit]:
    """At most `count` edits of `game`, all proven by `verify`, that shift its effort in `direction`, best first.

    `focus` is a phase: its rules draw the first half. `keys`: the keys that an edit may have. If the effort stays the
    same, a hint makes a game easier. Raises RejectedEdit if `game` has no plan.
    """
    asked, view = Direction(direction), View.of(game)
    plan = solve(FastGame(game))
    if plan is None:
        raise RejectedEdit("the game to change has no plan itself")
    before = view.effort(len(plan))
    found: dict[str, tuple[_Rank, Edit]] = {}
    first, rules = _RULES.get((asked, focus), ()) if focus else (), _RULES[asked, ""]
    halves = [(first, (count + 1) // 2, False), (rules, count, True)] if first else [(rules, count, False)]
    for drawn_by, most, other in halves:
        for _ in range(_TRIES_PER_EDIT * count // len(halves)):
            edit = rng.choice(drawn_by)(view, rng)
            if edit is None:
                continue
            if len(found) == most:
                break
            text = json.dumps(edit, sort_keys=True)
            if text in found or not keys >= edit.keys():
                continue
            try:
                child = apply_edit(game, edit)
                after = View.of(child).effort(verify(child, parent=game))
            except RejectedEdit:
                continue
            told = len(Hint.of(child.sentence).parts) - len(view.hint.parts)
            shift = (after - before, -told)
            if shift > (0, 0) if asked is _HARDER else shift < (0, 0):
                kept = child.problem.goal.kind is view.goal.kind
                scene = not edit.keys().isdisjoint({"move", "add", "remove"})
                found[text] = _Rank(told != 0, not view.usual(edit), not kept, scene, other, after), edit
    return [edit for _, edit in sorted(found.values(), key=itemgetter(0))]
