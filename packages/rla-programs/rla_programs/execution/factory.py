"""The sandbox configured in the section `env.own.execution` of the params."""

from __future__ import annotations

import sys

from rla.errors import UserError
from rla.processes import usable_cores
from rla_programs.execution.records import ExecutionConfig, Limits, Sandbox


def make_sandbox(config: ExecutionConfig) -> Sandbox:
    """Raises UserError with a remedy if the backend cannot work here, before anything is run."""
    workers = config.workers or usable_cores()
    if config.backend == "sandboxfusion":
        from rla_programs.execution.fusion import SandboxFusion

        return SandboxFusion(config.server, connections=workers)
    if sys.platform != "linux":
        raise UserError(
            "env.own.execution.backend: programs are confined by Linux; elsewhere set it to sandboxfusion, a server"
        )
    if config.backend == "rlimits":
        from rla_programs.execution.rlimits import rlimits

        return rlimits(workers=workers)
    from rla_programs.execution.bubblewrap import bubblewrap

    return bubblewrap(workers=workers)


def default_limits(config: ExecutionConfig) -> Limits:
    """The limits for tasks that do not set any."""
    return Limits(
        wall_s=config.wall_s,
        program_s=config.program_s,
        cpu_s=config.cpu_s,
        memory_mb=config.memory_mb,
        processes=config.processes,
        file_mb=config.file_mb,
        output_kb=config.output_kb,
    )
