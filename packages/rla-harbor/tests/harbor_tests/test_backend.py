"""Tasks that need an image, through the package harbor: the real one if it is installed, else the part of it that is
called. Its backend is a class of the tests, because no engine for containers runs where tests run.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rla_harbor.episode import HarborService
from rla_harbor.machines import PRINTED, check_backend
from rla_harbor.params import HarborParams

from harbor_tests.builders import TESTS, imported, needs_sandbox, one, played, written
from harbor_tests.fake_harbor import harbor_or_fake
from rla.envs.observation import EnvironmentFailure, Observation
from rla.errors import UserError
from rla.store.records import Task

BACKEND = "harbor_tests.shell_environment:ShellEnvironment"
ALPINE = "FROM alpine:3.20\nRUN apk add jq\nWORKDIR /app\n"


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether harbor itself is called. Afterwards no environment is left."""
    needs_sandbox()
    yield harbor_or_fake(monkeypatch)
    module = sys.modules.get("harbor_tests.shell_environment")
    assert module is None or module.NAMES == []


def task_in(tmp_path: Path, **files: str) -> Task:
    return one(written(tmp_path, docker=ALPINE, **files), backend=BACKEND)  # type: ignore[arg-type]


def answers(row: Task, *actions: str) -> list[Observation]:
    return played(row, actions, backend=BACKEND, command_s=2.0)


def test_a_script_solves_the_task_and_doing_nothing_does_not(real: bool, tmp_path: Path) -> None:
    row = task_in(tmp_path)
    first, made, end = answers(row, "echo 42 > answer; echo made", "done")
    assert "The shell is in /app." in first.text and made.text == "made"
    assert end.done and end.reward == 1.0
    assert answers(row, "done")[-1].reward == 0.0
    assert answers(row, "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt")[-1].reward == 0.0


def test_folders_stay_and_outputs_have_no_mark(real: bool, tmp_path: Path) -> None:
    _, moved, where, quoted, failed, replaced, _ = answers(
        task_in(tmp_path), "mkdir -p x; cd x", "pwd", "echo \"it's\" '$HOME'", "exit 3", "exec echo gone"
    )
    assert (moved.text, where.text, quoted.text) == ("[no output]", "/app/x", "it's $HOME")
    assert (failed.text, replaced.text) == ("[exit code 3]", "gone")


def test_a_command_that_hangs_is_stopped(real: bool, tmp_path: Path) -> None:
    _, slow, end = answers(task_in(tmp_path), "sleep 60", "done")
    assert slow.text == "[stopped after 2 seconds]" and end.done


def test_output_is_bounded_where_it_is_printed(real: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, sizes = task_in(tmp_path), list[int]()
    from harbor_tests.shell_environment import ShellEnvironment

    run = ShellEnvironment.exec

    async def measured(self: Any, command: str, **given: Any) -> Any:
        found = await run(self, command, **given)
        sizes.append(len(found.stdout))
        return found

    monkeypatch.setattr(ShellEnvironment, "exec", measured)
    much = "mkdir x; cd x; echo 42 > ../answer; seq 1 400000"  # 2.7 MB
    _, large, endless, end = played(row, [much, "pwd; yes", "done"], backend=BACKEND, command_s=30.0)
    assert large.text.startswith("1\n2\n") and endless.text.startswith("/app\ny\n")
    for seen in (large, endless):
        assert len(seen.text) < 5000 and seen.text.endswith("[stopped because it printed more than 256 KB]")
    assert end.reward == 1.0 and max(sizes) == PRINTED
    *_, enough, _ = answers(row, "seq 1 40000")  # 229 KB
    assert enough.text.endswith("\n40000")


def test_what_fails_has_no_outcome_and_says_why(real: bool, tmp_path: Path) -> None:
    log = "x" * 5000 + "\nno package jq\n"
    broken = task_in(tmp_path / "one", files={"environment/broken": log})  # type: ignore[arg-type]
    with pytest.raises(EnvironmentFailure, match="did not start: RuntimeError: the image cannot be built") as raised:
        answers(broken, "done")
    assert str(raised.value).endswith("no package jq") and len(str(raised.value)) < 600
    silent = task_in(tmp_path / "two", tests="#!/bin/bash\ntrue\n")
    with pytest.raises(EnvironmentFailure, match="gave no reward"):
        answers(silent, "done")
    many = TESTS + 'echo \'{"a": 1, "b": 1}\' > /logs/verifier/reward.json\n'
    with pytest.raises(EnvironmentFailure, match="left no reward"):
        answers(task_in(tmp_path / "three", tests=many), "done")


def test_tasks_of_the_sandbox_stay_there(real: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, other = one(written(tmp_path, "plain"), backend=BACKEND), task_in(tmp_path / "image")
    from harbor_tests.shell_environment import ShellEnvironment

    started = list[str]()

    async def refused(self: Any, force_build: bool) -> None:
        started.append(Path(self.environment_dir).parent.name)
        raise RuntimeError("it was started")

    async def stopped(self: Any, delete: bool) -> None: ...

    monkeypatch.setattr(ShellEnvironment, "start", refused)
    monkeypatch.setattr(ShellEnvironment, "stop", stopped)
    assert answers(row, "echo 42 > answer", "done")[-1].reward == 1.0 and started == []
    with pytest.raises(EnvironmentFailure, match="it was started"):
        answers(other, "done")
    assert started == ["answer"]


def test_bubblewrap_is_needed_only_for_tasks_that_run_in_it(
    real: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = task_in(tmp_path)
    plain = one(written(tmp_path, "plain"), prove=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert task_in(tmp_path) == row
    service = HarborService(HarborParams(backend=BACKEND))
    service.make(row).close()
    with pytest.raises(UserError, match=r"needs bubblewrap, but .* install the package bubblewrap \(0\.8 or newer\)$"):
        imported(tmp_path, backend=BACKEND)
    with pytest.raises(UserError, match=r"needs bubblewrap, but .* install the package bubblewrap \(0\.8 or newer\)$"):
        answers(plain, "done")


def test_a_backend_that_cannot_work_is_an_error_before_anything_runs(real: bool) -> None:
    with pytest.raises(UserError, match=r"harbor cannot use docker here \(SystemExit: Docker"):
        check_backend("docker")
    with pytest.raises(UserError, match="'spaceship' is not a valid EnvironmentType"):
        check_backend("spaceship")


def test_without_harbor_the_remedy_is_named(tmp_path: Path) -> None:
    try:
        importlib.import_module("harbor.environments.factory")
    except ImportError:
        with pytest.raises(
            UserError, match=r"needs the package harbor and Python 3\.12; install packages/rla-harbor\[harbor\]"
        ):
            check_backend("docker")
    else:
        pytest.skip("harbor is installed")
    rows, told = imported(written(tmp_path, docker=ALPINE).parent)
    assert rows == [] and told == ["answer is left out: its Dockerfile has FROM alpine:3.20; env.own.backend is empty"]
