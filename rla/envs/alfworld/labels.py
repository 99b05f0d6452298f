"""Ground truth about steps: did the action help, according to the solver and to what had been seen.

A step helps (+1) if the solver's remaining distance to the goal becomes smaller than ever before in the episode, or if
it looks into a likely place for the first time while an object that the goal needs has not been seen. A place is likely
if it holds the object at least `SHARE_OF_BEST` times as often (`catalog.share`) as the likeliest unvisited place.
Without that condition any order of search would earn the same, and the policy would not learn where to look.

All other steps do not help (-1): inadmissible commands, looks into unlikely places, returns to known places, steps away
from the goal, and the way back from there. Otherwise an agent that takes an object, puts it back and takes it again
would earn +1 every second step, more than an honest search, and a policy would learn to do so. The reason names the
case.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache
from math import inf
from random import Random

from rla.envs.alfworld.catalog import share
from rla.envs.alfworld.engine import GO, FastEngine, FastGame, State
from rla.envs.alfworld.expert import random_action
from rla.envs.alfworld.goals import Goal
from rla.envs.alfworld.solver import remaining
from rla.envs.observation import offered
from rla.envs.protocols import Labelled

PROGRESS = {
    "go": "it goes where the task needs it",
    "take": "it takes what the task needs",
    "open": "it opens what the task needs",
    "put": "it puts it where the task wants it",
    "move": "it puts it where the task wants it",
}
TREATS = "it does what the task asks"
LIKELY = "it looks in a likely place"
UNLIKELY = "it looks in an unlikely place"
REFUSED = "nothing happens"
AGAIN = "it has been there"
USELESS = "it does not help"
REASONS = (*dict.fromkeys(PROGRESS.values()), TREATS, LIKELY, UNLIKELY, REFUSED, AGAIN, USELESS)

SHARE_OF_BEST = 0.5
WAYS = 6  # `go to` commands among the alternatives to an action


class Search:
    """An agent's search: the instances of the goal's object type that it has seen, and the places it has visited."""

    def __init__(self, goal: Goal) -> None:
        self._item, self._needed = goal.item, goal.needed
        self._objects = re.compile(rf"\b{re.escape(goal.item)} \d+")
        self._seen: set[str] = set()
        self._visited: set[str] = set()

    def read(self, action: str, observation: str) -> None:
        """Take in an action and its result."""
        self._visited.add(action)
        self._seen.update(self._objects.findall(observation.lower()))

    def judge(self, action: str, commands: Sequence[str]) -> str | None:
        """LIKELY or UNLIKELY if `action` looks into a new place while objects are missing, else None."""
        if not action.startswith((GO, "open ")) or action in self._visited or len(self._seen) >= self._needed:
            return None
        left = (other for other in commands if other.startswith(GO) and other not in self._visited)
        best = max(map(self._chance, left), default=0)
        return LIKELY if self._chance(action) >= SHARE_OF_BEST * best else UNLIKELY

    def _chance(self, action: str) -> float:
        return share(self._item, action.removeprefix(GO).removeprefix("open ").partition(" ")[0])


def label_steps(
    tables: FastGame, actions: Sequence[str], *, others: int = 0, omit: Collection[str] = (), seed: int = 0
) -> list[list[Labelled]]:
    """Per step the label of its action, followed by the labels of up to `others` alternatives.

    The episode is replayed from the start. Alternatives are offered commands, except those of a kind in `omit`.
    """
    rng, search, engine = Random(seed), Search(tables.goal), FastEngine(tables)
    commands = engine.reset().commands

    @cache  # the state before a step is the one after the step before, and useless steps change nothing
    def distance(state: State) -> float:
        left = remaining(tables, state)
        return inf if left is None else left

    nearest = distance(engine.snapshot())

    def attempt(state: State, action: str) -> Labelled:
        engine.restore(state)
        observation = engine.step(action)
        before, after = distance(state), distance(engine.snapshot())
        verb = action.partition(" ")[0]
        looks = search.judge(action, commands)
        if action not in commands:
            score, reason = -1, REFUSED
        elif after < nearest:
            score, reason = 1, PROGRESS.get(verb, TREATS)
        elif looks:
            score, reason = (1 if looks == LIKELY else -1), looks
        else:
            idle = verb in ("go", "open", "close", "look", "examine", "inventory")
            score, reason = -1, AGAIN if idle else USELESS
        return Labelled(
            action=action, next_observation=observation.text, score=score, reason=reason, before=before, after=after
        )

    labels = []
    for action in actions:
        state = engine.snapshot()
        alternatives: list[Labelled] = []
        if others:
            left = [command for command in offered(commands, omit) if command != action]
            alternatives = contrast(rng, [attempt(state, one) for one in to_compare(rng, left)], others)
        taken = attempt(state, action)
        labels.append([taken, *alternatives])
        search.read(action, taken.next_observation)
        commands = engine.commands()
        nearest = min(nearest, distance(engine.snapshot()))
    return labels


def to_compare(rng: Random, commands: Sequence[str]) -> list[str]:
    """All commands except most of the `go to`, which are too many to label: a sample of `WAYS` of them."""
    going = [command for command in commands if command.startswith(GO)]
    return [c for c in commands if not c.startswith(GO)] + sorted(rng.sample(going, min(WAYS, len(going))))


def contrast(rng: Random, labelled: Sequence[Labelled], count: int) -> list[Labelled]:
    """Up to `count` of them in pairs: one that helps and, if possible, one of the same verb that does not.

    In an even draw nine of ten actions that take something take the wrong object, and a judge would learn that taking
    is wrong.
    """
    left = list(labelled)
    kept: list[Labelled] = []
    while left and len(kept) < count:
        wanted = 1 if len(kept) % 2 == 0 else -1
        verb = kept[-1].action.split(" ", 1)[0] if wanted < 0 else ""
        found = [one for one in left if one.score == wanted]
        near = [one for one in found if one.action.split(" ", 1)[0] == verb] or found or left
        names = [one.action for one in near]
        chosen = near[names.index(random_action(rng, names))]
        left.remove(chosen)
        kept.append(chosen)
    return kept
