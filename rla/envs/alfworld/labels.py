"""Ground truth about steps: did the action help, judged with the solver and with what had been seen.

A step helps (+1) when the solver's remaining distance to the goal becomes smaller than it has ever been in the episode,
or when it looks into a place never looked into while an object that the goal still needs has not been seen, and that
place is a likely one: the object is there at least `SHARE_OF_BEST` times as often as in the likeliest place not yet
visited (`priors.share`). Without that condition any order of search earns the same, and where to look is not learnt.

Everything else (-1) does not help: a command that is not admissible, a look into an unlikely place, a return to a known
one, a step away from the goal, and the way back from there: who takes a thing, puts it back and takes it again would
earn +1 each second step otherwise, more than an honest search does, and a policy that trains on such labels learns just
that. The short reason names the case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from math import inf

from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.alfworld.priors import share
from rla.envs.alfworld.problem import Goal, TaskKind
from rla.envs.alfworld.solver import remaining
from rla.envs.alfworld.tables import State
from rla.envs.views import Labelled

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
SEARCHES = ("go to ", "open ")


class Sight:
    """What the agent has seen: instances of the goal's object type, and places looked into."""

    def __init__(self, goal: Goal) -> None:
        self._item = goal.object_type.lower()
        self._objects = re.compile(rf"\b{re.escape(self._item)} \d+")
        self._needed = 2 if goal.kind is TaskKind.TWO else 1
        self._seen: set[str] = set()
        self._places: set[str] = set()

    def read(self, text: str) -> None:
        self._seen.update(self._objects.findall(text.lower()))

    def look(self, action: str, offered: Sequence[str]) -> str | None:
        """Why `action` is a good or bad search; None where it visits or opens no new place, or nothing is unseen."""
        if not action.startswith(SEARCHES) or action in self._places or len(self._seen) >= self._needed:
            return None
        left = (other for other in offered if other.startswith("go to ") and other not in self._places)
        best = max(map(self._chance, left), default=0)
        return LIKELY if self._chance(action) >= SHARE_OF_BEST * best else UNLIKELY

    def _chance(self, action: str) -> float:
        verb = next(verb for verb in SEARCHES if action.startswith(verb))
        return share(self._item, action.removeprefix(verb).partition(" ")[0])

    def did(self, action: str) -> None:
        self._places.add(action)


def nothing_else(offered: Sequence[str], taken: str) -> Sequence[str]:
    return ()


def label_steps(
    tables: FastGame,
    goal: Goal,
    actions: Sequence[str],
    others: Callable[[Sequence[str], str], Sequence[str]] = nothing_else,
    keep: Callable[[list[Labelled]], list[Labelled]] = list,
) -> list[list[Labelled]]:
    """Labels of each action of an episode, replayed from the start; after it those of `others(offered, action)` that
    `keep` picks from them.
    """
    engine = FastEngine(tables)
    offered = engine.reset().commands
    sight = Sight(goal)

    @cache  # before a step it is what it was after the one before, and useless steps change nothing
    def distance(state: State) -> float:
        left = remaining(tables, state)
        return inf if left is None else left

    nearest = distance(engine.snapshot())

    def attempt(state: State, action: str) -> Labelled:
        engine.restore(state)
        observation = engine.step(action)
        before, after = distance(state), distance(engine.snapshot())
        score, reason = judge(
            action,
            admissible=action in offered,
            closer=after < nearest,
            look=sight.look(action, offered),
        )
        return Labelled(
            action=action, next_observation=observation.text, score=score, reason=reason, before=before, after=after
        )

    labels = []
    for action in actions:
        state = engine.snapshot()
        alternatives = keep([attempt(state, other) for other in others(offered, action)])
        taken = attempt(state, action)
        labels.append([taken, *alternatives])
        sight.did(action)
        sight.read(taken.next_observation)
        offered = engine.commands()
        nearest = min(nearest, distance(engine.snapshot()))
    return labels


def judge(action: str, *, admissible: bool, closer: bool, look: str | None) -> tuple[int, str]:
    verb = action.partition(" ")[0]
    if not admissible:
        return -1, REFUSED
    if closer:
        return 1, PROGRESS.get(verb, TREATS)
    if look:
        return (1 if look == LIKELY else -1), look
    return -1, AGAIN if verb in ("go", "open", "close", "look", "examine", "inventory") else USELESS
