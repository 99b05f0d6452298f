"""Parameters of the environment `harbor`: `env.own`."""

from __future__ import annotations

from dataclasses import dataclass

from rla.config.schema import fraction, from_one, ranged


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborParams:
    """Parameters of tasks in Harbor's format (`docs/guide/harbor.md`)."""

    test_path: str = ""  # folder of held-out tasks; empty: a share of those in tasks.path
    held_out: float = fraction(0.2)  # that share
    # for tasks that need an image: an environment of the package harbor, such as docker, or module:Class; empty: none
    backend: str = ""
    prove: bool = True  # when they are imported, play the tasks of the sandbox: idle, and with their own solutions
    command_s: float = ranged(60.0, above=0.0, most=86400.0)  # of each command
    agent_s: float = ranged(900.0, above=0.0, most=86400.0)  # of all commands of an episode, unless the task says
    output_chars: int = from_one(4000)  # of a command's output, as the policy reads it
    memory_mb: int = from_one(1024)  # in the sandbox, of each process; a task may ask for less
    storage_mb: int = from_one(256)  # in the sandbox, of all files, which lie in memory; a task may ask for less
    processes: int = ranged(64, least=2, most=4096)  # in the sandbox, threads included
