"""A section of a package that follows the calls of stages and the updates of training."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rla.cli.app import run
from rla.errors import UserError
from rla.store.atomic import write_json
from tests.unit.builders import install
from tests.unit.cli.test_cli import replace_stage
from tests.unit.training.builders import call_stage

MODULE = '''
from contextlib import contextmanager
from dataclasses import dataclass

from rla.errors import UserError

said = []


@dataclass(frozen=True, slots=True)
class Harvest:
    """What is gathered."""

    refuse: bool = False

    def follow_call(self, ctx):
        if self.refuse:
            raise UserError("harvest.refuse is set")
        said.append("before")
        return lambda: said.append("after")

    @contextmanager
    def follow_training(self, run, stage, config):
        if config.harvest.refuse:
            raise UserError("harvest.refuse is set")
        said.append(f"{run.name} {stage}")
        try:
            yield lambda update: said.append(update["update"])
        finally:
            said.append("left")
'''


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The calls that the section `harvest` of an installed package has seen, in order."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "follower_of_a_test.py").write_text(MODULE)
    install(site, "farm", "1.0", "[rla.sections]\nharvest = follower_of_a_test:Harvest\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    yield import_module("follower_of_a_test").said
    del sys.modules["follower_of_a_test"]


def test_a_call_is_followed_from_before_its_work_until_after_it(
    said: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_stage(monkeypatch, "validate-tasks", lambda ctx: said.append("work") or {})
    assert run(["validate-tasks", "--run", "r", "--dry-run"]) == 0 and said == []
    assert run(["validate-tasks", "--run", "r"]) == 0
    assert said == ["before", "work", "after"]


def test_a_call_is_followed_to_its_end_if_a_warning_stops_it_but_not_if_it_fails(
    said: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(ctx: Any) -> dict[str, Any]:
        raise UserError("no rows")

    replace_stage(monkeypatch, "compute-rewards", failing)
    assert run(["compute-rewards", "--run", "r"]) == 2
    assert said == ["before"]
    replace_stage(monkeypatch, "compute-rewards", lambda ctx: {})
    Path("r/1").mkdir(parents=True, exist_ok=True)
    write_json(Path("r/1/metrics.json"), {"iteration": 1, "success": 0.5, "mu": 0.5})
    assert run(["compute-rewards", "--run", "r", "--set", "guards.stop=[useless-judge]"]) == 2
    assert said == ["before", "before", "after"]


def test_a_section_may_refuse_a_call_before_its_work(
    said: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_stage(monkeypatch, "validate-tasks", lambda ctx: pytest.fail("the stage works"))
    assert run(["validate-tasks", "--run", "r", "--set", "harvest.refuse=true"]) == 2
    assert "error: harvest.refuse is set\n" in capsys.readouterr().err


def test_the_updates_of_a_training_are_followed_on_the_first_rank(
    said: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_stage(tmp_path / "r")
    assert said == ["r train-policy", 1, 2, "left"]
    call_stage(tmp_path / "r")  # finds its checkpoint complete
    assert said[4:] == []
    monkeypatch.setattr("rla.training.stage.rank", lambda: 1)
    call_stage(tmp_path / "r", iteration=2)
    assert said[4:] == ["r train-policy", "left"]


def test_a_training_that_fails_is_left_and_one_that_is_refused_reads_no_data(said: list[Any], tmp_path: Path) -> None:
    def damaged() -> Any:
        raise UserError("a row is damaged")

    with pytest.raises(UserError, match="a row is damaged"):
        call_stage(tmp_path / "r", sequences=damaged)
    assert said == ["r train-policy", "left"]
    with pytest.raises(UserError, match=r"harvest\.refuse is set"):
        call_stage(tmp_path / "r", overrides=["harvest.refuse=true"], sequences=lambda: pytest.fail("data was read"))
