"""Every number that a params file may hold has bounds, which reading and the JSON Schema share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest

from rla.config.load import build
from rla.config.schema import KEY, bounds_in_words, ranged
from rla.config.sections import Config
from rla.envs.registry import installed_environments, load_config, params_of
from rla.errors import UserError

NUMBERS = (int, float)


def numeric_keys(section: Any, prefix: str = "") -> Iterator[tuple[str, Any, Field[Any]]]:
    """(key, section, field) of every key that takes a number."""
    hints = get_type_hints(section)
    for entry in fields(section):
        hint = hints[entry.name]
        if is_dataclass(hint):
            yield from numeric_keys(hint, f"{prefix}{entry.name}.")
        elif entry.init and any(kind in NUMBERS for kind in (hint, *get_args(hint))):
            yield f"{prefix}{entry.name}", section, entry


KEYS = list(numeric_keys(Config)) + [
    (f"{name}: {key}", section, entry)
    for name in installed_environments()
    for key, section, entry in numeric_keys(params_of(name))
]


def nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


@pytest.mark.parametrize(("key", "section", "entry"), KEYS, ids=[key for key, _, _ in KEYS])
def test_every_number_has_bounds_that_hold_its_default(key: str, section: Any, entry: Field[Any]) -> None:
    assert KEY in entry.metadata, f"{key}: say in the metadata of the field which numbers it takes"
    default = list(entry.default) if isinstance(entry.default, tuple) else entry.default
    assert getattr(build(section, {entry.name: default}, "params", ""), entry.name) == entry.default
    for value in (-(10**12), 10**20, -1e300, 1e300, float("nan"), float("inf"), -float("inf"), 10**400):
        with pytest.raises(UserError, match=entry.name):
            build(section, {entry.name: value}, "params", "")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train_policy.lr=.nan", "train_policy.lr is nan; expected a finite number"),
        ("train_rm.lr=-1e-6", "train_rm.lr is -1e-06; it must be from 0 to 1"),
        ("credit.step_weight=1e308", "credit.step_weight is 1e[+]308; it must be at most 1e[+]06"),
        ("rollout.max_failed_share=2", "rollout.max_failed_share is 2; it must be at most 1"),
        ("model.hidden_size=0", "model.hidden_size is 0; it must be from 1 to 65536"),
        ("generator.context=0", "generator.context is 0"),
        ("policy.temperature=1e-40", "policy.temperature is 1e-40; it must be from 0.01 to 100"),
        ("evaluation.temperature=0.001", "it must be 0, or from 0.01 to 100"),
        ("evaluation.top_p=0", "evaluation.top_p is 0; it must be above 0 and at most 1"),
        ("evaluation.top_p=1.1", "evaluation.top_p is 1.1; it must be at most 1"),
        ("train_policy.dual_clip=0.5", "it must be 0, or above 1 and at most 1e[+]06"),
        ("rollout.concurrency=1" + "0" * 30, "it must be at most 2147483647"),
        ("seed=-1", "seed is -1; it must be from 0 to 9223372036854775807"),
        ("generator.data_parallel=0", "generator.data_parallel is 0"),
        ("warm_start.policy.steps=0", "warm_start.policy.steps is 0; it must be 1 or more"),
    ],
)
def test_numbers_that_cannot_work_are_refused(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config(None, ["env.name=alfworld", override])


def test_bounds_in_words() -> None:
    assert bounds_in_words(ranged(1, least=1).metadata[KEY]) == "1 or more"
    assert bounds_in_words(ranged(0.5, above=0.0, most=1.0).metadata[KEY]) == "above 0 and at most 1"
    assert bounds_in_words(ranged(0.0, above=1.0, below=2.0, or_zero=True).metadata[KEY]) == "0, or above 1 and below 2"
