"""Parameters of reasoning-gym, read without the package."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest
from rla_bridges.adapters.reasoning_families import REFUSED, Family, reasoning_library
from rla_bridges.adapters.reasoning_gym import ReasoningGym
from rla_bridges.adapters.reasoning_params import ReasoningGymParams, levels_of, named_numbers, named_values

from rla.config import Config
from rla.envs.registry import from_mapping
from rla.errors import UserError
from tests.unit.docs.markdown_pages import DOCS

SUMS = Family(name="chain_sum", tops={"num_terms": 10, "num_digits": 3}, about={})


def config(**sections: Any) -> Config:
    data = {"env": {"name": "reasoning-gym", "own": {"id": "chain_sum"}}, **sections}
    return from_mapping(data, where="test")


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"policy": {"decoding": "admissible"}}, 'policy.decoding is admissible; reasoning-gym needs "free"'),
        ({"policy": {"reply": "index"}}, 'policy.reply is index; reasoning-gym needs "text" or "tagged"'),
        ({"tasks": {"path": "x"}}, "tasks.path is x; reasoning-gym needs null"),
        ({"tasks": {"kinds": ["gcd"]}}, "tasks.kinds is ('gcd',); reasoning-gym needs no kinds"),
    ],
)
def test_what_one_question_has_no_place_for_is_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as refused:
        config(**sections)
    assert str(refused.value) == f"test: {said}"


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"id": "codeio"}, "cannot play: it runs code of a data set"),
        ({"id": "list_functions"}, "its items differ from one process to the next"),
        ({"id": "game_of_life_halting"}, "accepts every answer"),
        ({"id": "rush_hour"}, "warm_start.enabled is True; reasoning-gym:rush_hour needs false"),
        ({"id": "acre"}, "adaptation.enabled is True; reasoning-gym:acre needs false"),
        ({"id": "gcd", "level": -1}, "env.own.level is -1"),
        ({"id": "gcd", "levels": ["value"]}, "write attribute=number"),
        ({"id": "gcd", "levels": ["value=²"]}, "write attribute=number"),
        ({"id": "gcd", "values": ["x=maybe"]}, "write name=value with JSON"),
        ({"id": "gcd", "values": ["seed=3"]}, "env.own.values sets seed, which rla draws"),
    ],
)
def test_families_levels_and_values_are_checked_when_they_are_read(own: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=r"^test: (env\.own|warm_start|adaptation)") as refused:
        config(env={"name": "reasoning-gym", "own": own})
    assert said in str(refused.value)


def test_no_family_is_asked_for_when_tasks_are_made() -> None:
    without = config(env={"name": "reasoning-gym", "own": {}})
    with pytest.raises(UserError, match="give one, such as --env reasoning-gym:chain_sum"):
        ReasoningGym().tasks(without, split="train", seed=0)


def test_values_and_levels_are_read_by_name() -> None:
    own = ReasoningGymParams(
        values=("allow_negation=true", 'operators=["+"]'), levels=("num_terms=2", "num_digits = 0")
    )
    assert named_values(own) == {"allow_negation": True, "operators": ["+"]}
    assert named_numbers(own) == {"num_terms": 2, "num_digits": 0}


def test_single_levels_stand_over_the_common_one_which_stops_at_the_highest() -> None:
    own = ReasoningGymParams(level=5, levels=("num_terms=2",))
    assert levels_of(own, SUMS) == {"num_terms": 2, "num_digits": 3}


@pytest.mark.parametrize(
    ("text", "said"), [("terms=1", "num_digits \\(0 to 3\\), num_terms"), ("num_digits=4", "the highest level is 3")]
)
def test_levels_that_there_are_not_are_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        levels_of(ReasoningGymParams(levels=(text,)), SUMS)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reasoning_library.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"is not installed; install rla-bridges\[reasoning-gym\] from a checkout"):
        reasoning_library()


def test_the_page_names_every_family_that_is_refused() -> None:
    page = (DOCS / "guide/reasoning-gym.md").read_text().partition("## Families that cannot be played")[2]
    named = set(re.findall(r"^\| (`.*`) \|", page, re.M))
    assert {name for cell in named for name in re.findall(r"`(\w+)`", cell)} == set(REFUSED)
