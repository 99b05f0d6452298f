"""Parameters of the coding environment: `env.own`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rla.config import Config
from rla.config.schema import from_one
from rla.errors import UserError
from rla_programs.execution.records import ExecutionConfig, check_execution


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingParams:
    """Parameters of the coding environment (`docs/guide/coding.md`)."""

    prompt: Literal["plain", "published"] = "plain"  # of the policy; the reward model uses judge.prompt
    tests: int = from_one(8)  # hidden tests of a built-in problem
    test_path: str = ""  # path to import held-out problems from; empty: tasks.path
    layout: str = ""  # of imported data sets; empty: recognised by the columns
    max_tests: int = from_one(32)  # hidden tests that are kept of an imported problem
    max_test_chars: int = from_one(20_000)  # longer tests are left out
    solvers: int = from_one(4)  # programs that are requested to check a problem written by a language model
    inputs: int = from_one(16)  # inputs on which its reference and independent solutions are compared
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)


def coding_params(config: Config) -> CodingParams:
    """The environment's own parameters."""
    own: CodingParams = config.env.own
    return own


def check_coding(config: Config) -> None:
    """Raises UserError for parameters that do not fit one question with one reply, scored by tests."""
    wanted: dict[str, tuple[object, tuple[object, ...]]] = {
        "policy.decoding": (config.policy.decoding, ("free",)),
        "judge.decoding": (config.judge.decoding, ("free",)),
        "credit.estimator": (config.credit.estimator, ("integrated", "outcome")),
        "credit.judged": (config.credit.judged, ("step",)),
        "credit.reward_model_balanced": (config.credit.reward_model_balanced, (False,)),
        "warm_start.alike": (config.warm_start.alike, (0,)),
        "warm_start.calibration.steps": (config.warm_start.calibration.steps, (0,)),
    }
    for key, (value, possible) in wanted.items():
        if value not in possible:
            raise UserError(f"{key} is {value}; env.name: coding needs {' or '.join(map(str, possible))}")
    check_execution(coding_params(config).execution)
