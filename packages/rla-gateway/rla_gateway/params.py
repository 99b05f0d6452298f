"""Parameters of the environment `agent`: `env.own`."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rla.config import Config
from rla.config.schema import ranged, without_effect
from rla.errors import UserError

NAME = "agent"
PIPELINES = Path(__file__).with_name("pipelines")  # the parameter files that `rla init --pipeline` offers


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParams:
    """Parameters of the environment `agent` (`docs/guide/gateway.md`)."""

    # the program and its arguments; {instruction}, {task}, {outcome} and {folder} in them are replaced
    command: tuple[str, ...] = ()
    # exit: status 0 wins; file: the number that the agent writes to {outcome}; verifier: another program's status 0
    outcome: Literal["exit", "file", "verifier"] = "exit"
    verifier: tuple[str, ...] = ()  # run when the agent has ended; replaced as in command
    vocabulary: str = ""  # a text file whose words become tokens of a small new model
    format: Literal["hermes", "qwen3_coder"] = "hermes"  # how the model's chat template writes tool calls
    idle_s: float = ranged(300.0, above=0.0, most=86400.0)  # until its next request, or its end
    processes: int = ranged(256, least=1, most=4096)  # processes and threads; an agent with more is stopped
    memory_mb: int = ranged(16384, least=0, most=16777216)  # address space of each process; 0: no limit
    file_mb: int = ranged(1024, least=1, most=16777216)  # each file; in the sandbox all files of a folder together
    sandbox: bool = False  # run the agent in a sandbox of bubblewrap, with no network but the endpoint
    readable: tuple[str, ...] = without_effect(())  # what a sandboxed agent reads besides the system's files


def check_agent(config: Config) -> None:
    """Raises UserError for parameters that do not fit an agent, which holds its own conversations."""
    own, policy = config.env.own, config.policy
    for key, value, needed in (("decoding", policy.decoding, "free"), ("reply", policy.reply, "text")):
        if value != needed:
            raise UserError(f"policy.{key} is {value}; env.name: {NAME} needs {needed}")
    if (own.outcome == "verifier") != bool(own.verifier):
        raise UserError("env.own.outcome: verifier and env.own.verifier, its command, need each other; set both")


def check_machine(own: AgentParams) -> None:
    """Raises UserError if the agent cannot be started here."""
    if not os.path.exists("/proc/thread-self/children"):
        raise UserError(
            f"env.name: {NAME} finds the processes of agents in /proc; use Linux, with /proc/*/task/*/children"
        )
    for key, words in (("command", own.command), ("verifier", own.verifier or own.command)):
        if not words or shutil.which(words[0]) is None:
            raise UserError(f"env.own.{key} is {list(words)}; name a program that can be run, with its arguments")
    if own.sandbox and shutil.which("bwrap") is None:
        raise UserError("env.own.sandbox needs bubblewrap (Debian: bubblewrap); install it, or set sandbox to false")
