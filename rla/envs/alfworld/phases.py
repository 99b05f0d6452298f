"""The phases of an ALFWorld episode, read from what was done and seen.

finding   until an object of the goal's type has been seen     treating  until one was cleaned, heated or cooled
taking    until one was picked up                              placing   until the end (LOOK: the lamp)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from rla.envs.alfworld.goals import Goal, TaskKind
from rla.envs.views import Course, Phase

FINDING, TAKING, TREATING, PLACING = "finding", "taking", "treating", "placing"
_TREATED = {TaskKind.CLEAN: "clean", TaskKind.HEAT: "heat", TaskKind.COOL: "cool"}
_PLACED = {TaskKind.LOOK: "getting light on the {item}", TaskKind.TWO: "getting both {item}s to a {target}"}


def game_course(goal: Goal, episodes: Sequence[Mapping[str, Any]]) -> Course:
    """`episodes`: outcome, steps (observation, action) and final_observation of trajectories of one task."""
    names = phases_of(goal)
    ended: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    for episode in episodes:
        phases = _phases(goal, names, episode)
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


def phases_of(goal: Goal) -> dict[str, str]:
    """The names of the phases of such a task, in order, and what each is about."""
    item, target = goal.object_type.lower(), goal.target_type.lower()
    found = {FINDING: f"finding a {item}", TAKING: f"taking a {item}"}
    if goal.kind in _TREATED:
        found[TREATING] = f"{_TREATED[goal.kind]}ing the {item}"
    placing = _PLACED.get(goal.kind, "putting the {item} into a {target}")
    return {**found, PLACING: placing.format(item=item, target=target)}


def _phases(goal: Goal, names: Mapping[str, str], episode: Mapping[str, Any]) -> list[str]:
    """The phase in which each step was made, then the one that the episode ended in."""
    item = goal.object_type.lower()
    seen = re.compile(rf"\b{re.escape(item)} \d")
    done = {
        FINDING: lambda text: seen.search(text) is not None,
        TAKING: lambda text: text.startswith(f"You pick up the {item} "),
        TREATING: lambda text: text.startswith(f"You {_TREATED.get(goal.kind)} the {item} "),
        PLACING: lambda text: False,
    }
    left = list(names)
    texts = [*(step["observation"] for step in episode["steps"]), episode["final_observation"]]
    found = [left[0]]
    for _, text in pairwise(texts):
        while done[left[0]](text.strip()):
            left.pop(0)
        found.append(left[0])
    return found
