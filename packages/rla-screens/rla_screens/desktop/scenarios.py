"""Tasks in the form of OSWorld, with the published additions for adaptation: parsed and validated as untrusted data.

    {"id", "instruction", "config": [{"type", "parameters"}], "evaluator": {"func", "result", "expected", ...}}
    {"current_task": {"evaluator1": "..."}, "task_template": {...}, "evaluator_list": {"evaluator1": {...}, ...}}

Our own have `solutions` (a script for each verifier), `wrong` (ends that must not score) and `hints`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rla.envs.authoring import is_text, root_task
from rla.store.records import Task

NAME = "desktop"
ONLY = "evaluator1"  # the verifier of a task that has one
LONGEST = 4000  # characters of an instruction
LONGEST_NAME = 200
INFEASIBLE = "infeasible"


class ScenarioError(Exception):
    """An invalid task; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scene and its current task. `verifiers`, `templates` and `solutions` are by the names of the verifiers.
    `current` is the verifier in use, with `instruction`, which may begin with a hint.
    """

    id: str
    domain: str
    instruction: str
    config: tuple[Mapping[str, Any], ...]
    current: str
    verifiers: Mapping[str, Mapping[str, Any]]
    templates: Mapping[str, str]
    solutions: Mapping[str, tuple[str, ...]]
    wrong: tuple[tuple[str, ...], ...] = ()
    hints: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()

    @property
    def evaluator(self) -> Mapping[str, Any]:
        return self.verifiers[self.current]

    @property
    def solution(self) -> tuple[str, ...]:
        """The script of the current verifier; empty if there is none."""
        return self.solutions.get(self.current, ())

    def content(self) -> dict[str, Any]:
        """JSON data that `scenario_of_json` reads."""
        return {
            "id": self.id,
            "domain": self.domain,
            "instruction": self.instruction,
            "config": list(self.config),
            "current_task": {self.current: self.instruction},
            "task_template": dict(self.templates),
            "evaluator_list": dict(self.verifiers),
            "solutions": {name: list(script) for name, script in self.solutions.items()},
            "wrong": [list(script) for script in self.wrong],
            "hints": list(self.hints),
            "related_apps": list(self.apps),
        }


def scenario_of_json(found: Any, *, domain: str = "") -> Scenario:
    """Raises ScenarioError."""
    if not isinstance(found, dict):
        raise ScenarioError("it is no JSON object")
    verifiers = found.get("evaluator_list") or {ONLY: found.get("evaluator")}
    current, instruction = _current_of(found)
    if not isinstance(verifiers, dict) or not all(
        isinstance(each, dict) and each.get("func") for each in verifiers.values()
    ):
        raise ScenarioError("it has no evaluator with a func")
    if current not in verifiers:
        raise ScenarioError(f"current_task names {current!r}, which evaluator_list does not have")
    if not instruction.strip() or not is_text(instruction, longest=LONGEST):
        raise ScenarioError(f"its instruction is empty, no text, or longer than {LONGEST} characters")
    if not is_text(domain, longest=LONGEST_NAME):
        raise ScenarioError("its domain is no name")
    templates = _of_names(found, "task_template") or {current: instruction}
    return Scenario(
        id=_name_in(found, "id"),
        domain=domain or _name_in(found, "domain") or _name_in(found, "snapshot") or "desktop",
        instruction=instruction.strip(),
        config=_setup_steps(found.get("config") or []),
        current=current,
        verifiers=verifiers,
        templates={str(name): str(text) for name, text in templates.items() if name in verifiers},
        solutions={name: _texts_in(script, "solutions") for name, script in _of_names(found, "solutions").items()},
        wrong=tuple(_texts_in(script, "wrong") for script in _listed_in(found, "wrong")),
        hints=_texts_in(found.get("hints"), "hints"),
        apps=_texts_in(found.get("related_apps"), "related_apps"),
    )


def _name_in(found: Mapping[str, Any], key: str) -> str:
    """Empty if the key is missing. Raises ScenarioError, as the functions below do."""
    value = found.get(key)
    text = "" if value is None else str(value)
    if not isinstance(value, str | int | None) or not is_text(text, longest=LONGEST_NAME):
        raise ScenarioError(f"its {key} is no name of at most {LONGEST_NAME} characters")
    return text


def _of_names(found: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = found.get(key) or {}
    if not isinstance(value, dict):
        raise ScenarioError(f"its {key} is no JSON object")
    return value


def _listed_in(found: Mapping[str, Any], key: str) -> list[Any]:
    value = found.get(key) or []
    if not isinstance(value, list):
        raise ScenarioError(f"its {key} is no list")
    return value


def _texts_in(value: Any, key: str) -> tuple[str, ...]:
    listed = _listed_in({key: value}, key)
    if not all(isinstance(each, str) for each in listed):
        raise ScenarioError(f"its {key} has what is no text")
    return tuple(listed)


def _current_of(found: Mapping[str, Any]) -> tuple[str, str]:
    """The current verifier and the instruction."""
    current = found.get("current_task")
    name, instruction = ONLY, found.get("instruction", "")
    if isinstance(current, dict) and len(current) == 1:
        name, instruction = next(iter(current.items()))
    elif current is not None:
        raise ScenarioError("current_task is not a JSON object with one verifier")
    if not isinstance(instruction, str):
        raise ScenarioError("its instruction is no text")
    return name, instruction


def _setup_steps(found: Any) -> tuple[Mapping[str, Any], ...]:
    """Setup steps. Raises ScenarioError."""
    if not isinstance(found, list) or not all(
        isinstance(step, dict) and isinstance(step.get("parameters", {}), dict) for step in found
    ):
        raise ScenarioError("its config is no list of {type, parameters}")
    return tuple(found)


def task_of_scenario(scenario: Scenario, *, split: str) -> Task:
    """A root task, which is its own slot."""
    return root_task(
        env=NAME,
        split=split,
        instruction=scenario.instruction,
        content=scenario.content(),
        kind=scenario.domain,
        scene=scenario.id or scenario.domain,
    )


def scenario_of(task: Task) -> Scenario:
    """Raises ScenarioError for an invalid payload."""
    return scenario_of_json(json.loads(task.payload))
