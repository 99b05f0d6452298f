"""Parameters of reasoning-gym: `env.own` (`docs/guide/reasoning-gym.md`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rla.config import Config
from rla.config.schema import from_zero
from rla.errors import UserError
from rla_bridges.adapters.reasoning_families import WITHOUT_ANSWER, WITHOUT_LEVELS, Family, check_family


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningGymParams:
    """Parameters of reasoning-gym (`docs/guide/reasoning-gym.md`)."""

    id: str = ""  # the family, such as chain_sum
    level: int = from_zero(0)  # level of all attributes; an attribute with fewer levels has its highest
    levels: tuple[str, ...] = ()  # levels of single attributes, such as num_terms=2
    values: tuple[str, ...] = ()  # the family's other parameters, as JSON: allow_negation=true


def reasoning_params(config: Config) -> ReasoningGymParams:
    """The environment's own parameters."""
    own: ReasoningGymParams = config.env.own
    return own


def check_reasoning(config: Config) -> None:
    """Raises UserError for parameters that do not fit one question with one answer. Does not import the package."""
    own = reasoning_params(config)
    if own.id:
        check_family(own.id)
    wanted: dict[str, tuple[object, tuple[object, ...]]] = {
        "policy.decoding": (config.policy.decoding, ("free",)),
        "policy.reply": (config.policy.reply, ("text", "tagged")),
        "tasks.path": (config.tasks.path, (None,)),
        "tasks.kinds": (config.tasks.kinds, ((),)),
        "tasks.test_kinds": (config.tasks.test_kinds, ((),)),
    }
    if own.id in WITHOUT_ANSWER:
        wanted["warm_start.enabled"] = (config.warm_start.enabled, (False,))
    if own.id in WITHOUT_ANSWER | WITHOUT_LEVELS:
        wanted["adaptation.enabled"] = (config.adaptation.enabled, (False,))
    for key, (value, possible) in wanted.items():
        if value not in possible:
            name = f"reasoning-gym:{own.id}" if key.endswith("enabled") else "reasoning-gym"
            needs = " or ".join(json.dumps(each) if each != () else "no kinds" for each in possible)
            raise UserError(f"{key} is {value}; {name} needs {needs}")
    named_values(own)
    named_numbers(own)


def named_values(own: ReasoningGymParams) -> dict[str, Any]:
    """`env.own.values` by name. Raises UserError."""
    found = {}
    for text in own.values:
        name, equals, value = text.partition("=")
        try:
            found[name.strip()] = json.loads(value)
        except (ValueError, RecursionError):
            equals = ""
        if not equals:
            raise UserError(f"env.own.values has {text!r}; write name=value with JSON, such as allow_negation=true")
    if reserved := found.keys() & {"seed", "size"}:
        raise UserError(f"env.own.values sets {', '.join(sorted(reserved))}, which rla draws; leave it out")
    return found


def named_numbers(own: ReasoningGymParams) -> dict[str, int]:
    """`env.own.levels` by name. Raises UserError."""
    found = {}
    for text in own.levels:
        name, _, number = text.partition("=")
        if not (number.strip().isascii() and number.strip().isdigit() and len(number) < 5):
            raise UserError(f"env.own.levels has {text!r}; write attribute=number, such as num_terms=2")
        found[name.strip()] = int(number)
    return found


def levels_of(own: ReasoningGymParams, family: Family) -> dict[str, int]:
    """The level of each attribute. Raises UserError for attributes and levels that do not exist."""
    found = family.at(own.level)
    for name, level in named_numbers(own).items():
        if name not in family.tops:
            known = ", ".join(f"{key} (0 to {top})" for key, top in sorted(family.tops.items())) or "none"
            raise UserError(f"env.own.levels names {name!r}; attributes of {family.name}: {known}")
        if level > family.tops[name]:
            raise UserError(f"env.own.levels has {name}={level}; the highest level is {family.tops[name]}")
        found[name] = level
    return found
