"""Options whose work only packages do."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from rla import pipeline
from rla.cli.app import run
from rla.errors import UserError
from rla.pipeline import implementation


def test_the_function_of_an_option_is_found_or_its_absence_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint(name="evaluate.from", value="rla.seeds:derive", group=pipeline.GROUP)
    monkeypatch.setattr(pipeline, "registered", lambda group: {entry.name: entry})
    assert implementation("evaluate.from").__name__ == "derive"
    with pytest.raises(UserError, match=r"export.other: no installed package does this; install the package that"):
        implementation("export.other")


def test_a_check_gets_the_options_of_the_command_and_decides_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    def check(*arguments: Any, **options: Any) -> int:
        told.append((arguments, options))
        return len(told) - 1

    monkeypatch.setattr(pipeline, "implementation", {"envs.check": check}.__getitem__)
    assert run(["envs", "--check", "dice"]) == 0
    options = ["--params", "p.yaml", "--set", "env.max_steps=3", "--episodes", "2", "--seed", "7"]
    assert run(["envs", "--check", "dice:loaded", *options]) == 1
    overrides = ["env.max_steps=3", 'env.name="dice"', 'env.own.id="loaded"']
    assert told == [
        (("dice", None, ['env.name="dice"']), {"episodes": 4, "seed": 0}),
        (("dice", Path("p.yaml"), overrides), {"episodes": 2, "seed": 7}),
    ]


def test_without_a_package_that_checks_the_option_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline, "registered", lambda group: {})
    assert run(["envs", "--check", "alfworld"]) == 2
    assert capsys.readouterr().err == (
        "error: envs.check: no installed package does this; install the package that docs/guide/install.md#packages "
        "names for it\n"
    )
