"""Demonstrations are not run when they are made; here they are, and the sandbox answers as they say."""

from __future__ import annotations

import asyncio

import pytest
from rla_programs.execution.records import ExecutionConfig
from rla_programs.tool.calls import CallFormat
from rla_programs.tool.demonstrating import taught_rounds
from rla_programs.tool.families.reasoning_programs import PROGRAMS
from rla_programs.tool.families.registry import OWN
from rla_programs.tool.interpreter import PythonTool

from programs_tests.execution.sandboxes import made
from programs_tests.tool.questions import HERMES, SHORT, drawn

GYM = tuple(f"reasoning-gym:{name}" for name in PROGRAMS)


@pytest.mark.parametrize("calls", [SHORT, HERMES], ids=["short", "hermes"])
def test_the_sandbox_gives_exactly_the_texts_that_are_shown(calls: CallFormat) -> None:
    tasks = [*drawn(*OWN, count=2 * len(OWN)), *drawn(*OWN, count=len(OWN), level=9), *drawn(*GYM, count=len(GYM))]
    shown = [
        taught_rounds(task, calls, seed=number, random_share=share)
        for number, task in enumerate(tasks)
        for share in (0.0, 1.0)
    ]

    async def told() -> list[list[str]]:
        tool = PythonTool(ExecutionConfig(wall_s=60.0), sandbox=made("bubblewrap"))
        try:
            return [
                [(await tool.call(calls.parse(action).calls[0])).text for action in one.actions[:-1]] for one in shown
            ]
        finally:
            await tool.close()

    assert asyncio.run(told()) == [one.observations[1:] for one in shown]
