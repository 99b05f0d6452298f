"""Parameters of the environment `tool`: `env.own`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rla.config import Config
from rla.config.schema import from_one, from_zero, ranged
from rla.errors import UserError
from rla_programs.collecting.params import collect_params
from rla_programs.execution.records import ExecutionConfig, check_execution


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolParams:
    """Parameters of the environment `tool` (`docs/guide/tool.md`)."""

    tool: Literal["python", "none"] = "python"  # none: the policy is neither told of a tool nor taught to call one
    format: Literal["hermes", "qwen3_coder", "short"] = "hermes"  # how calls and answers are written
    prompt: Literal["plain", "published"] = "plain"  # plain: the question alone; published: instructions around it
    # if no call of a reply can be parsed: report the reason, or end the episode
    on_malformed: Literal["tell", "end"] = "tell"
    max_parallel_calls: int = from_one(1)  # calls of one reply that are run; further calls are refused
    result_chars: int = from_one(2048)  # characters of a result; the published code keeps 256
    answer: Literal["checked", "published"] = "checked"  # published: exact text of a box that ends the whole response
    level: int = from_zero(0)  # of every attribute of generated families
    level_spread: int = from_zero(0)  # number of higher levels to draw from as well
    layout: str = ""  # of imported data sets; empty: recognised by the columns
    test_path: str = ""  # path to import held-out questions from; empty: tasks.path
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    # a bare last expression is printed: syntax decides on the syntax tree, published on the last line
    autoprint: Literal["syntax", "off", "published"] = "syntax"
    # of long results; published: without the number of missing characters
    cut: Literal["middle", "published"] = "middle"
    solvers: int = from_one(8)  # programs that are requested to prove the answer of a rewritten question
    agreement: float = ranged(0.5, above=0.0, most=1.0)  # share of them that has to print that answer

    @property
    def has_tool(self) -> bool:
        return self.tool != "none"


def tool_params(config: Config) -> ToolParams:
    """The environment's own parameters."""
    own: ToolParams = config.env.own
    return own


def check_tool(config: Config) -> None:
    """Raises UserError for parameters that do not fit free text in a growing dialogue."""
    wanted: dict[str, tuple[object, object]] = {
        "policy.decoding": (config.policy.decoding, "free"),
        "policy.history": (config.policy.history, "full"),
        "policy.reply": (config.policy.reply, "text"),
        "policy.repeat_task": (config.policy.repeat_task, False),
    }
    for key, (value, possible) in wanted.items():
        if value != possible:
            raise UserError(f"{key} is {value}; env.name: tool needs {str(possible).lower()}")
    if collect_params(config).variant == "stitched" and not tool_params(config).has_tool:
        raise UserError("collect.variant: stitched writes calls down, and env.own.tool is none; set one of the two")
    check_execution(tool_params(config).execution)
