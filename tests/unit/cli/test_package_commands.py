"""Commands that packages bring: functions, groups and stages; broken ones fail alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rla.cli.app import run
from tests.unit.builders import install

MODULE = '''
from typing import Annotated

import typer

from rla.cli.guard import guard
from rla.errors import UserError
from rla.pipeline import StageSpec

group = typer.Typer(help="Dice in a cup.")


def roll(sides: Annotated[int, typer.Option(min=2, help="Of the die.")] = 6) -> None:
    """Roll a die."""

    def call():
        if sides > 100:
            raise UserError("--sides: no such die")
        typer.echo(f"one of {sides}")

    guard(call)


@group.command()
def shake() -> None:
    """Shake it."""
    typer.echo("shaken")


@group.command()
def turn() -> None:
    """Turn it over."""


def odd(where: list[list[int]]) -> None:
    """typer knows no option of this type."""


COUNT = StageSpec(
    name="count-dice",
    module="dice_commands_of_a_test",
    summary="Count the dice.",
    example="rla count-dice --colour red",
    reads=(("tasks", "train_tasks"),),
    writes=(),
    sections=("env",),
    beside=True,
    divided=True,
    options=(("colour", Annotated[str | None, typer.Option("--colour", help="Of the dice.")], None),),
)
NUMBER = 3


def run(ctx):
    return {"options": dict(ctx.options), "max_steps": ctx.config.env.max_steps}
'''
ENTRIES = """[rla.commands]
roll = dice_commands_of_a_test:roll
cup = dice_commands_of_a_test:group
count-dice = dice_commands_of_a_test:COUNT
params = dice_commands_of_a_test:roll
rollout = dice_commands_of_a_test:roll
odd = dice_commands_of_a_test:odd
number = dice_commands_of_a_test:NUMBER
gone = dice_commands_of_a_test:gone
missing = no_such_module_of_a_test:roll
"""
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "dice_commands_of_a_test.py").write_text(MODULE)
    install(tmp_path, "dice", "1.5", ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("dice_commands_of_a_test", None)


def test_a_function_is_a_command(capsys: Captured) -> None:
    assert run(["roll", "--sides", "8"]) == 0
    assert capsys.readouterr().out == "one of 8\n"
    assert run(["roll", "--sides", "1"]) == 2
    assert run(["roll", "--sides", "101"]) == 2
    assert capsys.readouterr().err.endswith("error: --sides: no such die\n")


def test_a_group_has_commands_of_its_own(capsys: Captured) -> None:
    assert run(["cup", "shake"]) == 0
    assert capsys.readouterr().out == "shaken\n"


def test_a_stage_has_the_options_of_every_stage_and_its_own(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["count-dice", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(option in said for option in ("--set", "--dry-run", "--tasks", "--slice", "--workers", "--colour"))
    assert run(["count-dice", "--run", "r", "--colour", "red", "--slice", "1/2", "--set", "env.max_steps=7"]) == 0
    said = capsys.readouterr().out
    assert "colour" in said and "red" in said and "1/2" in said and "max_steps: 7" in said


def test_help_lists_them_all_and_says_what_is_broken_or_left_out(capsys: Captured) -> None:
    assert run(["--help"]) == 0
    said = capsys.readouterr()
    lines = {line.split()[0]: line for line in said.out.splitlines() if line.strip()}
    assert "Roll a die." in lines["roll"] and "Dice in a cup." in lines["cup"]
    assert "Count the dice." in lines["count-dice"]
    assert [name for name in ("odd", "number", "gone", "missing") if "broken: " not in lines[name]] == []
    assert "Print every parameter" in lines["params"] and "Play episodes" in lines["rollout"]
    assert sorted(said.err.splitlines()) == [
        "left out: the command params of dice: rla has it",
        "left out: the command rollout of dice: rla has it",
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("odd", "of which no command can be made"),
        ("number", "of which no command can be made"),
        ("gone", "cannot be imported"),
        ("missing", "cannot be imported (ModuleNotFoundError: No module named 'no_such_module_of_a_test'); mend the"),
    ],
)
@pytest.mark.parametrize("words", [[], ["--some", "thing"]], ids=["alone", "with options"])
def test_a_broken_one_fails_with_the_reason(name: str, reason: str, words: list[str], capsys: Captured) -> None:
    assert run([name, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: rla.commands: {name} is ") and reason in line


@pytest.mark.parametrize(("typed", "meant"), [("rol", "roll"), ("rolout", "rollout"), ("count-dise", "count-dice")])
def test_a_name_that_is_nearly_right(typed: str, meant: str, capsys: Captured) -> None:
    assert run([typed]) == 2
    assert f"'{meant}'" in capsys.readouterr().err
