"""Task folders that tests write, episodes of them, and what an episode answers to a script."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rla_harbor.environment import Harbor
from rla_harbor.episode import HarborService
from rla_harbor.params import HarborParams
from rla_programs.execution.shell import shell_boxes

from rla.config import Config
from rla.config.sections import EnvConfig
from rla.envs.observation import Observation
from rla.errors import UserError
from rla.store.records import Task

TASKS = Path(__file__).with_name("tasks")
TESTS = """#!/bin/bash
[ "$(cat answer 2>/dev/null)" = 42 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""
TOML = "[agent]\ntimeout_sec = 60.0\n[verifier]\ntimeout_sec = 20.0\n"


def written(
    top: Path,
    name: str = "answer",
    *,
    toml: str = TOML,
    docker: str = "FROM debian:bookworm\nWORKDIR /app\n",
    tests: str = TESTS,
    files: dict[str, str] | None = None,
    solution: str = "echo 42 > answer",
) -> Path:
    """A folder whose task is to write 42 into /app/answer; `files` are further ones, below the folder."""
    texts = {
        "task.toml": toml,
        "instruction.md": "Write 42 into answer.",
        "environment/Dockerfile": docker,
        "tests/test.sh": tests,
        "solution/solve.sh": solution,
        **(files or {}),
    }
    for path, text in texts.items():
        if text:
            (top / name / path).parent.mkdir(parents=True, exist_ok=True)
            (top / name / path).write_text(text)
    return top / name


def config_of(path: Path | None = None, **own: object) -> Config:
    """Parameters of a run on the tasks in a folder, of which all train unless `held_out` is given."""
    params = HarborParams(**{"held_out": 0.0, **own})  # type: ignore[arg-type]
    config = replace(Config(), env=EnvConfig(name="harbor", own=params))
    return replace(config, tasks=replace(config.tasks, path=None if path is None else str(path)))


def imported(path: Path, *, split: str = "train", **own: object) -> tuple[list[Task], list[str]]:
    """The tasks of a folder, and the lines about the others."""
    told: list[str] = []
    return Harbor().import_tasks(config_of(path, **own), split=split, tell=told.append), told


def one(path: Path, **own: object) -> Task:
    """The row of the only task in a folder."""
    (row,), told = imported(path, **own)
    assert told == []
    return row


def played(row: Task, actions: Sequence[str], **own: object) -> list[Observation]:
    """The answers of an episode: to its reset, to each action until it is done, and to its end at the step limit."""

    async def main() -> list[Observation]:
        service = HarborService(HarborParams(**own))  # type: ignore[arg-type]
        episode = service.make(row)
        try:
            seen = [await episode.reset()]
            for action in actions:
                seen.append(await episode.step(action))
                if seen[-1].done:
                    return seen
            return [*seen, await episode.stopped()]
        finally:
            episode.close()
            await service.close()

    return asyncio.run(main())


def solution_of(name: str) -> str:
    """The solution of one of the task folders here, as one command."""
    return (TASKS / name / "solution/solve.sh").read_text()


def needs_sandbox() -> None:
    """Skips the test if this machine cannot run the sandbox, with the reason."""
    try:
        shell_boxes()
    except UserError as error:
        pytest.skip(str(error))


def copied(name: str, top: Path) -> Path:
    """A copy of one of the task folders here, in a folder of its own."""
    return Path(shutil.copytree(TASKS / name, top / name))
