"""Runs programs that models have written where they can do no harm: `make_sandbox`, `Job` in, `Result`s out."""

from rla_programs.execution.factory import default_limits, make_sandbox
from rla_programs.execution.records import Call, ExitStatus, Job, Limits, Result, Sandbox

__all__ = ["Call", "ExitStatus", "Job", "Limits", "Result", "Sandbox", "default_limits", "make_sandbox"]
