"""`rla envs --check`: its lines and its exit codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rla.cli.app import run
from tests.unit.builders import install

MODULE = """
class Params:
    pass


class Dice:
    name, Params = "dice", Params

    def tasks(self, config, *, split, seed):
        return []

    def make(self, task, config):
        return None

    def policy_prompt(self, config):
        return None


class Half:
    name = "half"
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package as an installer leaves it: a module, and its entry points in a folder beside it."""
    (tmp_path / "dice_of_a_check.py").write_text(MODULE)
    install(tmp_path, "dice", "1.5", "[rla.envs]\ndice = dice_of_a_check:Dice\nhalf = dice_of_a_check:Half\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("dice_of_a_check", None)


def test_an_environment_that_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ("env.max_steps=4", "tasks.train_scenes=3", "tasks.test_scenes=2", "tasks.tasks_per_scene=1")
    options = [part for one in sets for part in ("--set", one)]
    assert run(["envs", "--check", "alfworld", "--episodes", "1", "--seed", "2", *options]) == 0
    *checks, total = capsys.readouterr().out.splitlines()
    assert checks[0] == "ok      Env: It has the five members of Env, of their types"
    assert all(line.startswith("ok      ") for line in checks)
    assert total == f"{len(checks)} checks, 0 broken"


@pytest.mark.usefixtures("package")
def test_a_broken_environment_is_told_with_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["envs", "--check", "dice"]) == 1
    *_, broken, why, total = capsys.readouterr().out.splitlines()
    assert broken.startswith("BROKEN  Env: Params is a frozen dataclass with defaults")
    assert why.startswith("        Params is not a frozen dataclass") and why.endswith("(nothing further was checked)")
    assert total == "2 checks, 1 broken"


@pytest.mark.usefixtures("package")
def test_an_environment_that_cannot_be_made_is_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["envs", "--check", "half"]) == 2
    assert "error: rla.envs: half" in capsys.readouterr().err
