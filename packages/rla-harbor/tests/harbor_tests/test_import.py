"""`make-tasks`: which folders become tasks, the reasons for the others, and the splits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rla_harbor.environment import Harbor
from rla_study.contract import check_environment

from harbor_tests.builders import TASKS, config_of, copied, imported, needs_sandbox, written
from rla.config.sections import PolicyConfig
from rla.envs.registry import load_config
from rla.errors import UserError


@pytest.fixture(autouse=True)
def sandbox() -> None:
    needs_sandbox()


def test_the_tasks_of_this_folder() -> None:
    rows, told = imported(TASKS)
    assert sorted(row.scene for row in rows) == ["fix-report", "merge-inventory", "recover-token"]
    assert len(told) == 1 and told[0].startswith("build-with-apt is left out: its Dockerfile has RUN with apt-get")


def test_every_folder_that_is_left_out_is_told_with_its_reason(tmp_path: Path) -> None:
    written(tmp_path, "good")
    written(tmp_path, "copy")
    written(tmp_path, "won", tests="echo 1 > /logs/verifier/reward.txt\n")
    written(tmp_path, "silent", tests="true\n")
    written(tmp_path, "unsolvable", solution="echo 41 > answer")
    written(tmp_path, "broken", docker="FROM debian\nRUN false\n")
    written(tmp_path, "hungry", toml="[environment]\ngpus = 1\n")
    written(tmp_path, "odd", toml="[agent]\ntimeout_sec = true\n")
    rows, told = imported(tmp_path)
    assert [row.scene for row in rows] == ["copy"]
    reasons = dict(line.split(" is left out: ") for line in told)
    assert reasons.pop("good") == "it is a copy of copy"
    assert reasons == {
        "won": "its tests give 1 although nothing was done",
        "silent": "its tests leave no reward in the sandbox",
        "unsolvable": "its own solution gets 0 in the sandbox (exit code 0), so it needs an image or a network",
        "broken": "RUN false failed in the sandbox: exit code 1",
        "hungry": "it wants a GPU or TPU",
        "odd": "task.toml: agent.timeout_sec is True; it must be a number above 0 and at most 86400",
    }


def test_folders_of_equal_names_are_told_apart(tmp_path: Path) -> None:
    written(tmp_path / "easy", "one", toml="[agent]\ntimeout_sec = -1\n")
    written(tmp_path / "hard", "one", toml="[environment]\ngpus = 1\n")
    written(tmp_path / "hard", "two")
    written(tmp_path / "easy", "two")
    rows, told = imported(tmp_path, prove=False)
    assert [row.scene for row in rows] == ["two"]
    assert [line[:50] for line in told] == [
        "easy/one is left out: task.toml: agent.timeout_sec",
        "hard/one is left out: it wants a GPU or TPU",
        "hard/two is left out: it is a copy of easy/two",
    ]
    assert imported(tmp_path / "hard/one")[1] == ["one is left out: it wants a GPU or TPU"]


def test_without_proofs_nothing_is_played(tmp_path: Path) -> None:
    written(tmp_path, "won", tests="echo 1 > /logs/verifier/reward.txt\n")
    rows, told = imported(tmp_path, prove=False)
    assert [row.scene for row in rows] == ["won"] and told == []


def test_the_splits_divide_the_folder_by_contents(tmp_path: Path) -> None:
    for number in range(5):
        written(tmp_path, f"task{number}", files={"environment/number": str(number)})
    train, _ = imported(tmp_path, prove=False, held_out=0.4)
    test, _ = imported(tmp_path, prove=False, held_out=0.4, split="test")
    assert (len(train), len(test)) == (3, 2)
    assert {row.task_id for row in train}.isdisjoint(row.task_id for row in test)
    whole, _ = imported(tmp_path, prove=False, split="test", test_path=str(tmp_path))
    assert len(whole) == 5


def test_shares_are_of_the_tasks_that_can_be_played_and_reasons_are_told_once(tmp_path: Path) -> None:
    for number in range(3):
        written(tmp_path, f"good{number}", files={"environment/number": str(number)})
        written(tmp_path, f"won{number}", tests=f"echo {number + 1} > /logs/verifier/reward.txt\n")
    train, told = imported(tmp_path, held_out=0.3)
    test, again = imported(tmp_path, held_out=0.3, split="test")
    assert (len(train), len(test), len(told), again) == (2, 1, 3, [])


def test_the_check_of_environments_plays_the_tasks_of_a_folder(tmp_path: Path) -> None:
    for name in ("fix-report", "recover-token"):
        copied(name, tmp_path)
    overrides = ["env.name=alfworld", "env.max_steps=3", "policy.decoding=free", "policy.reply=tagged"]
    config = replace(config_of(tmp_path, held_out=0.5), policy=load_config(None, overrides).policy)
    findings = check_environment(Harbor(), replace(config, env=replace(config.env, max_steps=3)), episodes=1)
    assert [finding for finding in findings if not finding.ok] == []


def test_text_of_a_task_in_a_line_is_printable_and_short(tmp_path: Path) -> None:
    written(tmp_path, "good")
    image = "x\\u001b[31m" + "y" * 1000
    written(tmp_path, "long", toml=f'[environment]\ndocker_image = "{image}"\n')
    _, (line,) = imported(tmp_path)
    assert line.isprintable() and len(line) == 300


def test_impossible_parameters_name_their_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="rla make-tasks --from"):
        Harbor().tasks(config_of(), split="train", seed=0)
    with pytest.raises(UserError, match="is not a folder"):
        imported(tmp_path / "nothing")
    with pytest.raises(UserError, match="decoding: free"):
        Harbor().check(replace(config_of(), policy=PolicyConfig(decoding="admissible")))
