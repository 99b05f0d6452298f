"""What `check_environment` says of environments that keep the contract, and of broken parameters and tasks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from rla_study.contract import check_environment, check_parameters

from rla.config import Config
from rla.config.schema import section_schema
from rla.config.sections import EnvConfig
from rla.envs.alfworld.environment import Alfworld
from rla.store.records import Task
from study_tests.contract.broken import (
    SMALL,
    GuessNumber,
    broken,
    config_of,
    the_only_complaint,
    with_members,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A part of parameters."""

    size: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """Parameters."""

    inner: Inner = Inner()


# Environments that keep the contract.


def test_the_example_keeps_it() -> None:
    findings = check_environment(GuessNumber(), config_of(GuessNumber), episodes=3, seed=1)
    assert [finding for finding in findings if not finding.ok] == []
    assert {finding.protocol for finding in findings} == {
        *("Env", "Judged", "Demonstrates", "HasExpert", "Labels", "Adapts")
    }


def test_alfworld_keeps_it() -> None:
    config = Config(env=EnvConfig(name="alfworld", max_steps=8, own=Alfworld.Params()), tasks=SMALL)
    assert broken(Alfworld(), config) == {}


def test_the_random_generators_of_the_caller_are_left_as_they_were() -> None:
    random.seed(5)
    before = random.getstate()
    broken(GuessNumber())
    assert random.getstate() == before


def test_an_episode_that_cannot_be_made_is_a_finding() -> None:
    def make(self: object, task: Task, config: Config) -> Any:
        raise ValueError("no board")

    assert "ValueError: 'no board'" in the_only_complaint(with_members(make=make))


# The five members and their parameters.


def test_a_missing_member_ends_the_check() -> None:
    env = SimpleNamespace(name="guess-number", Params=GuessNumber.Params, tasks=lambda: [], make=lambda: None)
    assert "policy_prompt is None" in the_only_complaint(env)


def test_parameters_without_a_default() -> None:
    @dataclass(frozen=True)
    class Params:
        size: int

    (*_, last) = check_parameters(with_members(Params=Params))
    assert "give each parameter a default" in last.broken


def test_parameters_within_parameters_are_written_as_a_schema() -> None:
    assert json.loads(json.dumps(section_schema(Nested)))["properties"]["inner"]["default"] == {"size": 3}


def test_parameters_that_can_be_changed() -> None:
    @dataclass
    class Params:
        largest: int = 21

    (*_, last) = check_parameters(with_members(Params=Params))
    assert "is not a frozen dataclass" in last.broken


@dataclass(frozen=True)
class OfAKind:
    kinds: frozenset[str] = field(default_factory=lambda: frozenset({"a"}))
    largest: int = 21


def test_parameters_that_are_no_json() -> None:
    (*_, last) = check_parameters(with_members(Params=OfAKind))
    assert "use int, float, str" in last.broken and "nothing further was checked" in last.broken


def test_another_name_than_the_entry_point() -> None:
    assert "it is installed as" in the_only_complaint(with_members(name="guess"))


# Tasks.


def changed_tasks(change: Callable[[list[Task], str, int], list[Task]]) -> Any:
    def tasks(self: Any, config: Config, *, split: str, seed: int) -> list[Task]:
        return change(GuessNumber.tasks(self, config, split=split, seed=seed), split, seed)

    return with_members(tasks=tasks)


TASKS: list[tuple[str, Callable[[list[Task], str, int], Any], str]] = [
    ("none", lambda found, split, seed: [], "return a list with at least one task"),
    ("a generator", lambda found, split, seed: iter(found), "return a list"),
    ("too many", lambda found, split, seed: found * 9, "asks for 6 at most"),
    ("a row", lambda found, split, seed: [task.row() for task in found], "rla.store.records.Task"),
    ("any", lambda found, split, seed: random.sample(found, len(found)), "random.Random(seed) alone"),
    ("another name", lambda found, split, seed: [replace(t, env="guess") for t in found], "it must be 'guess-number'"),
    ("another slot", lambda found, split, seed: [replace(t, slot="s") for t in found], "has slot 's'"),
    ("another split", lambda found, split, seed: [replace(t, split="train") for t in found], "has split 'train'"),
    ("no JSON", lambda found, split, seed: [replace(t, payload="{") for t in found], "use json.dumps"),
    ("no text", lambda found, split, seed: [replace(t, instruction="\ud800") for t in found], "surrogate"),
    ("no column", lambda found, split, seed: [replace(t, kind=None) for t in found], "kind of a task is None"),
    ("twice", lambda found, split, seed: [found[0], *found[:-1]], "is there twice"),
    (
        "numbered",
        lambda found, split, seed: [
            replace(task, task_id=f"{split}-{n}", slot=f"{split}-{n}") for n, task in enumerate(found)
        ],
        "means another task with another seed",
    ),
]


@pytest.mark.parametrize(("change", "complaint"), [row[1:] for row in TASKS], ids=[row[0] for row in TASKS])
def test_broken_tasks(change: Callable[[list[Task], str, int], list[Task]], complaint: str) -> None:
    assert complaint in the_only_complaint(changed_tasks(change))


def test_splits_that_share_tasks() -> None:
    def tasks(self: Any, config: Config, *, split: str, seed: int) -> list[Task]:
        return [replace(t, split=split) for t in GuessNumber.tasks(self, config, split="train", seed=seed)][:4]

    assert "draw the splits from disjoint ranges" in the_only_complaint(with_members(tasks=tasks))
