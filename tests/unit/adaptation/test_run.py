"""Iterations of `validate-tasks` and `adapt-env` on files."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rla.adaptation import acceptance
from rla.store.layout import artifact
from rla.store.reading import read_manifest, read_rows
from rla.store.shards import Origin, write_shard
from tests.unit.adaptation.run_folder import Loop, played_loop

WRITTEN = ("verdicts", "standings", "pool")

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acceptance, "CONFIDENCE", 0.5)  # so that eight rollouts accept some
        yield played_loop(tmp_path_factory.mktemp("loop"))


def rows(loop: Loop, kind: str) -> list[dict[str, Any]]:
    return [row for i in range(1, loop.iteration + 1) for row in read_rows(artifact(loop.run, kind, i), kind)]


def contents(loop: Loop, iteration: int) -> dict[str, bytes]:
    folders = [artifact(loop.run, name, iteration) for name in WRITTEN]
    return {str(path): path.read_bytes() for folder in folders for path in sorted(folder.iterdir())}


def test_each_iteration_plays_the_same_number_of_episodes(loop: Loop) -> None:
    """Eight slots and six places: the pending tasks and their parents are among the six."""
    for iteration in range(1, loop.iteration + 1):
        played = Counter(
            row["task_id"] for row in read_rows(artifact(loop.run, "trajectories", iteration), "trajectories")
        )
        assert sorted(played.values()) == [8] * 6


def test_parent_and_child_were_measured_in_the_same_iteration(loop: Loop) -> None:
    verdicts = rows(loop, "verdicts")
    assert verdicts and all(row["rule"] == "interval" and row["parent_rollouts"] == 8 for row in verdicts)
    for row in verdicts:
        if row["accepted"]:
            harder = row["direction"] == "harder"
            assert row["difference_high"] < 0 if harder else row["difference_low"] > 0
            assert row["expert_success"] is not None and 1 <= row["root_expert_steps"] <= 12
        else:
            assert row["expert_success"] is None
    assert {row["accepted"] for row in verdicts} == {True, False}


def test_no_task_is_judged_twice_for_a_slot(loop: Loop) -> None:
    judged = [(row["slot"], row["task_id"]) for row in rows(loop, "verdicts")]
    assert len(judged) == len(set(judged)) > 4
    last = {
        row["slot"]: row["tried"] for row in read_rows(artifact(loop.run, "standings", loop.iteration), "standings")
    }
    assert sorted((slot, name) for slot, tried in last.items() for name in tried) == sorted(judged)


def test_the_counts_of_a_manifest_are_those_of_its_rows(loop: Loop) -> None:
    counts = [
        read_manifest(artifact(loop.run, "verdicts", i), "verdicts")["counts"] for i in range(1, loop.iteration + 1)
    ]
    accepted = [sum(row["accepted"] for row in rows(loop, "verdicts") if row["iteration"] == i + 1) for i in range(6)]
    assert [entry["accepted"] for entry in counts] == accepted
    assert [entry["accepted_harder"] + entry["accepted_easier"] for entry in counts] == accepted
    assert [entry["accepted_total"] for entry in counts] == [sum(accepted[: i + 1]) for i in range(6)]
    judged = [sum(c["measured"] for kinds in entry["by_edit"].values() for c in kinds.values()) for entry in counts]
    assert judged == [entry["pending"] for entry in counts]


def test_a_descendant_that_left_the_band_for_good_gives_way_to_its_root(loop: Loop) -> None:
    returned = [row for row in rows(loop, "standings") if row["decision"] == "returned"]
    assert any(row["reason"].startswith("mastered") for row in returned)
    for row in returned:
        pool = {task["slot"]: task for task in read_rows(artifact(loop.run, "pool", row["iteration"]), "tasks")}
        root = {task["slot"]: task for task in read_rows(artifact(loop.run, "train_tasks", 0), "tasks")}[row["slot"]]
        assert pool[row["slot"]] == root
        held = [one for one in rows(loop, "standings") if one["held_id"] == row["held_id"] and one["rollouts"]]
        last = [one["accuracy"] for one in held][-2:]
        assert len(last) == 2
        assert min(last) >= 0.8 if row["reason"].startswith("mastered") else max(last) <= 0.2


@pytest.mark.parametrize("lost", [WRITTEN, ("standings", "pool"), ("pool",)], ids="-".join)
def test_an_iteration_that_was_cut_short_is_made_again_to_the_byte(loop: Loop, lost: tuple[str, ...]) -> None:
    before = contents(loop, loop.iteration)
    for name in lost:
        shutil.rmtree(artifact(loop.run, name, loop.iteration))
    loop.stage("validate-tasks")
    assert contents(loop, loop.iteration) == before


def test_standings_of_the_iteration_before_are_needed_from_the_second_on(loop: Loop, tmp_path: Path) -> None:
    moved = artifact(loop.run, "standings", loop.iteration - 1).rename(tmp_path / "standings")
    assert loop.stage("validate-tasks", "--overwrite") == 2
    moved.rename(artifact(loop.run, "standings", loop.iteration - 1))
    loop.stage("validate-tasks")


def test_an_accepted_candidate_of_another_pool_is_refused(loop: Loop, tmp_path: Path, capsys: Captured) -> None:
    accepted = next(row for row in rows(loop, "verdicts") if row["accepted"])
    before = read_rows(artifact(loop.run, "candidates", accepted["iteration"] - 1), "candidates")
    orphans = [row | {"parent_id": "gone"} for row in before if row["task_id"] == accepted["task_id"]]
    write_shard(tmp_path / "candidates", "candidates", orphans, Origin(config="c", inputs={}, seed=0))
    written = [word for name in ("verdicts", "standings", "out") for word in (f"--{name}", str(tmp_path / name))]
    options = ["--iteration", str(accepted["iteration"]), "--set", "adaptation.acceptance=paper", *written]
    assert loop.stage("validate-tasks", "--candidates", str(tmp_path / "candidates"), *options) == 2
    assert "give the candidates that were made from this pool" in capsys.readouterr().err
