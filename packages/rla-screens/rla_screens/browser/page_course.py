"""The phases of episodes on pages: before something on the page has changed, and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rla.envs.authoring import course_of_one_phase
from rla.envs.protocols import Course, Phase


def page_course(episodes: Sequence[Mapping[str, Any]]) -> Course:
    """Two phases: before something on the page has changed, and after. Episodes with pictures get one phase only. Their
    texts are constant and do not show a change, and their pictures include the mouse, so they differ even if the page
    does not change.
    """
    verbs = Counter(step["action"].split(" ", 1)[0] for episode in episodes for step in episode["steps"])
    if any(episode.get("screens") is not None for episode in episodes):
        return replace(course_of_one_phase(episodes), spent=tuple(verbs.most_common()))
    lost = {"beginning": 0, "acting": 0}
    spent = {"beginning": 0, "acting": 0}
    won = 0
    for episode in episodes:
        texts = [step["observation"] for step in episode["steps"]] + [episode["final_observation"]]
        still = first_change(texts)
        spent["beginning"] += still
        spent["acting"] += len(episode["steps"]) - still
        won += episode["outcome"] == 1
        if episode["outcome"] != 1:
            lost["acting" if still < len(episode["steps"]) else "beginning"] += 1
    abouts = {"beginning": "the first change of the page", "acting": "what follows it"}
    phases = tuple(Phase(name=n, about=abouts[n], ended=lost[n], steps=spent[n]) for n in abouts)
    return Course(episodes=len(episodes), won=won, phases=phases, spent=tuple(verbs.most_common()))


def first_change(texts: Sequence[str]) -> int:
    """The number of steps before the first that changes the text. The first text begins with the task."""
    shown = [texts[0].partition("\n")[2], *texts[1:]]
    return next((number for number in range(len(shown) - 1) if shown[number + 1] != shown[number]), len(shown) - 1)
