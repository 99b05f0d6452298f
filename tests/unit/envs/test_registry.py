"""Environments are found by name: built-in ones, and those of packages, which may be broken."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rla import __version__
from rla.cli.commands import listed
from rla.envs.alfworld.environment import Alfworld
from rla.envs.registry import Installed, environment, installed_environments, installed_list, params_of
from rla.errors import UserError
from tests.unit.builders import install

MODULE = '''
class Params:
    pass


class Whole:
    """A game of dice.

    More about it.
    """

    name, Params = "dice", Params

    def tasks(self, config, *, split, seed):
        return []

    def make(self, task, config):
        return None

    def policy_prompt(self, config):
        return None


class Judged(Whole):
    def judge_prompt(self, config):
        return None


class Half:
    name = "half"
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package as an installer leaves it: a module, and its entry points in a folder beside it."""
    (tmp_path / "dice_of_a_test.py").write_text(MODULE)
    (tmp_path / "broken_of_a_test.py").write_text("raise RuntimeError('no dice in the house')\n")
    install(
        tmp_path,
        "dice",
        "1.5",
        "[rla.envs]\n"
        "dice = dice_of_a_test:Judged\n"
        "bare = dice_of_a_test:Whole\n"
        "half = dice_of_a_test:Half\n"
        "gone = dice_of_a_test:Gone\n"
        "missing = no_such_module_of_a_test:Dice\n"
        "raises = broken_of_a_test:Dice\n",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("dice_of_a_test", None)


def entry(name: str) -> Installed:
    (found,) = [one for one in installed_list() if one.name == name]
    return found


def test_the_built_in_ones_are_there() -> None:
    assert "alfworld" in installed_environments()
    assert isinstance(environment("alfworld"), Alfworld)
    assert params_of("alfworld") is Alfworld.Params


def test_a_package_brings_one(package: None) -> None:
    assert installed_environments()["dice"].value == "dice_of_a_test:Judged"
    assert environment("dice").name == "dice"


def test_a_name_that_is_nearly_right() -> None:
    with pytest.raises(UserError, match=r"env.name is 'alfword'; did you mean alfworld\?"):
        environment("alfword")


def test_a_name_that_is_unknown() -> None:
    with pytest.raises(UserError, match=r"installed: .*alfworld"):
        environment("zzz")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("half", "has no Params, tasks, make, policy_prompt; see rla.envs.protocols.Env"),
        ("gone", "cannot be imported .*no attribute 'Gone'"),
        ("missing", "cannot be imported .*No module named"),
    ],
)
def test_a_class_that_is_no_environment(package: None, name: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        environment(name)


def test_a_listed_one_has_package_abilities_and_docstring(package: None) -> None:
    assert entry("dice") == Installed(
        name="dice",
        target="dice_of_a_test:Judged",
        package="dice",
        version="1.5",
        abilities=("Judged",),
        about="A game of dice.",
    )
    assert entry("bare").abilities == ()
    assert (entry("alfworld").package, entry("alfworld").version) == ("rla", __version__)
    assert {"Judged", "Adapts", "Pooled"} <= set(entry("alfworld").abilities)


@pytest.mark.parametrize("name", ["half", "gone", "missing", "raises"])
def test_a_broken_one_is_listed_with_the_reason(package: None, name: str) -> None:
    assert entry(name).broken
    assert entry(name).abilities == ()


def test_a_package_that_raises_does_not_hide_the_others(package: None) -> None:
    assert entry("raises").broken == (
        "rla.envs: raises is broken_of_a_test:Dice, which cannot be imported (RuntimeError: no dice in the house); "
        "mend the package dice, or uninstall it"
    )
    assert entry("dice").broken == ""


def test_the_table_is_two_lines_for_each(package: None) -> None:
    lines = listed(as_json=False).splitlines()
    assert len(lines) == 2 * len(installed_environments())
    head = lines.index(next(line for line in lines if line.startswith("dice ")))
    assert lines[head].split() == ["dice", "dice", "1.5", "A", "game", "of", "dice."]
    assert lines[head + 1].split() == ["Judged"]
    bare = lines.index(next(line for line in lines if line.startswith("bare ")))
    assert lines[bare + 1].strip() == "(the five required members alone)"
    assert any(
        line.strip().startswith("broken: rla.envs: raises is broken_of_a_test:Dice, which cannot") for line in lines
    )


def test_the_list_as_json(package: None) -> None:
    (dice,) = [one for one in json.loads(listed(as_json=True)) if one["name"] == "dice"]
    assert dice["abilities"] == ["Judged"]
    assert dice["broken"] == ""
