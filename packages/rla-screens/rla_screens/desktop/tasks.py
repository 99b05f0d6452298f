"""Our own tasks (Apache-2.0, `own/*.json`), and the split of any list of tasks.

A task belongs to one side forever: the digest of its scene's name decides whether it is held out, so hints and other
verifiers of the same scene stay on that side.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files

from rla.store.records import Task
from rla_screens.desktop.scenarios import Scenario, scenario_of_json, task_of_scenario

DOMAINS = ("files", "text", "preferences", "spreadsheets")
HELD_OUT_OF = 4  # every fourth scene, about


@lru_cache(maxsize=1)
def own_scenarios() -> tuple[Scenario, ...]:
    """All scenes, domain by domain."""
    folder = files("rla_screens.desktop") / "own"
    found = ((domain, json.loads((folder / f"{domain}.json").read_text(encoding="utf-8"))) for domain in DOMAINS)
    return tuple(scenario_of_json(each, domain=domain) for domain, listed in found for each in listed)


def is_held_out_scene(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % HELD_OUT_OF == 0


def desktop_tasks(
    kinds: Sequence[str], *, count: int, held_out: bool, seed: int, split: str, hints: bool
) -> list[Task]:
    """Scenes of `kinds` (domains or names of scenes; empty: all), each with each of its verifiers, domains in turn."""
    chosen = [one for one in own_scenarios() if not kinds or one.domain in kinds or one.id in kinds]
    found = [
        asked_otherwise(one, name, hint=one.hints[0] if hints and one.hints else "")
        for one in chosen
        if is_held_out_scene(one.id) is held_out
        for name in one.verifiers
        if name == one.current or name in one.solutions
    ]
    random.Random(f"{seed} {split}").shuffle(found)
    found.sort(key=lambda one: one.current != "evaluator1")  # the plain ones first
    return [task_of_scenario(one, split=split) for one in _domains_in_turn(found)[:count]]


def asked_otherwise(scenario: Scenario, verifier: str, *, hint: str = "") -> Scenario:
    """The same scene with another verifier and its instruction, optionally followed by a hint."""
    instruction = " ".join(part for part in (scenario.templates[verifier], hint) if part)
    return replace(scenario, current=verifier, instruction=instruction)


def _domains_in_turn(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """One of each domain after the other, in their original order."""
    by_domain: dict[str, list[Scenario]] = {}
    for one in scenarios:
        by_domain.setdefault(one.domain, []).append(one)
    rounds = max(map(len, by_domain.values()), default=0)
    return [listed[number] for number in range(rounds) for listed in by_domain.values() if number < len(listed)]
