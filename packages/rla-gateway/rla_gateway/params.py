"""Parameters of the environment `agent`: `env.own`."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from typing import Literal

from rla.config import Config
from rla.config.schema import ranged, without_effect
from rla.errors import UserError

NAME = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParams:
    """Parameters of the environment `agent` (`docs/guide/gateway.md`)."""

    # the program and its arguments; {instruction}, {task}, {outcome} and {folder} in them are replaced
    command: tuple[str, ...] = ()
    # exit: status 0 wins; file: the number that the agent writes to {outcome}; verifier: another program's status 0
    outcome: Literal["exit", "file", "verifier"] = "exit"
    verifier: tuple[str, ...] = ()  # run in the episode's folder when the agent has ended; replaced as in command
    test_path: str = ""  # JSON lines with the held-out tasks; empty: tasks.path, by its column split
    vocabulary: str = ""  # a text file whose words a small new model gets besides those of the instructions
    format: Literal["hermes", "qwen3_coder"] = "hermes"  # how the model's chat template writes tool calls
    idle_s: float = ranged(300.0, above=0.0, most=86400.0)  # until its next request, or its end
    agent_s: float = ranged(3600.0, above=0.0, most=864000.0)  # the agent's own time in an episode, without replies
    processes: int = ranged(256, least=1, most=4096)  # of an agent; it is ended if it starts more
    sandbox: bool = False  # run the agent in a sandbox of bubblewrap, with no network but the endpoint
    readable: tuple[str, ...] = without_effect(())  # what a sandboxed agent reads besides the system's files


def agent_params(config: Config) -> AgentParams:
    """The environment's own parameters."""
    own: AgentParams = config.env.own
    return own


def check_agent(config: Config) -> None:
    """Raises UserError for parameters that do not fit an agent, which holds its own conversations."""
    own = agent_params(config)
    wanted: dict[str, tuple[object, object]] = {
        "policy.decoding": (config.policy.decoding, "free"),
        "policy.history": (config.policy.history, "full"),
        "policy.reply": (config.policy.reply, "text"),
        "policy.repeat_task": (config.policy.repeat_task, False),
    }
    for key, (value, possible) in wanted.items():
        if value != possible:
            raise UserError(f"{key} is {value}; env.name: agent needs {str(possible).lower()}")
    if (own.outcome == "verifier") != bool(own.verifier):
        raise UserError("env.own.outcome: verifier and env.own.verifier, its command, need each other; set both")


def check_machine(own: AgentParams) -> None:
    """Raises UserError if the agent cannot be started here."""
    if sys.platform != "linux":
        raise UserError("env.name: agent watches the processes of agents through Linux's /proc; use a Linux machine")
    for key, command in (("command", own.command), ("verifier", own.verifier)):
        if (command or key == "command") and not (command and shutil.which(command[0])):
            named = repr(command[0]) if command else "empty"
            raise UserError(
                f"env.own.{key} is {named}, which is no program that can be run; name one with its arguments"
            )
    if own.sandbox and shutil.which("bwrap") is None:
        raise UserError("env.own.sandbox needs bubblewrap (Debian: bubblewrap); install it, or set sandbox to false")
