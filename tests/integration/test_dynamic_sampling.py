"""`rollout.fill: mixed` at the command line, with scripted replies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rla.rollouts.play import is_mixed
from rla.store.manifest import MANIFEST, STARTED, read_json
from rla.store.reading import read_rows
from tests.integration.conftest import Rla
from tests.integration.pipelines import contents

pytestmark = pytest.mark.usefixtures("forked_python")

MIXED = ("--set", "rollout.fill=mixed", "--set", "rollout.tasks_per_iteration=2", "--set", "env.max_steps=14")


def groups(folder: Path) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for row in read_rows(folder, "trajectories", ["task_id", "outcome", "stop_reason"]):
        found.setdefault(row["task_id"], []).append(row)
    return found


def test_tasks_are_played_until_enough_are_mixed_or_the_budget_is_spent(rla: Rla, tmp_path: Path) -> None:
    assert rla("rollout", "--run", "r", "--set", "rollout.tasks_per_iteration=2", "--set", "env.max_steps=14")[0] == 0
    plain = groups(tmp_path / "r/1/trajectories")
    assert rla("rollout", "--run", "r", *MIXED, "--out", "d")[0] == 0
    filled = groups(tmp_path / "d")
    mixed = sum(map(is_mixed, filled.values()))
    assert len(plain) == 2 and list(plain) == list(filled)[:2]  # the first round is what is played in any case
    assert sum(map(is_mixed, plain.values())) < 2 < len(filled) <= 6  # three times two is the budget
    assert mixed >= 2 or len(filled) == 6


def test_a_call_that_goes_on_plays_the_same_rounds(rla: Rla, tmp_path: Path) -> None:
    assert rla("rollout", "--run", "r", *MIXED)[0] == 0
    whole = contents(tmp_path / "r/1/trajectories")
    assert len([name for name in whole if name.startswith("part-")]) > 2
    folder = tmp_path / "r/1/trajectories"
    manifest = read_json(folder / MANIFEST)
    (folder / MANIFEST).unlink()
    header = ("kind", "schema_version", "config_digest", "input_digests", "seed")
    (folder / STARTED).write_text(json.dumps({key: manifest[key] for key in header}))
    for part in sorted(folder.glob("part-*.parquet"))[1:]:  # killed within the first round
        part.unlink()
    assert rla("rollout", "--run", "r", *MIXED)[0] == 0
    assert contents(folder) == whole


def test_every_worker_fills_its_share(rla: Rla, tmp_path: Path) -> None:
    assert rla("rollout", "--run", "r", *MIXED)[0] == 0
    code, said, error = rla("rollout", "--run", "r", *MIXED, "--out", "w", "--workers", "2")
    assert code == 0 and "missing slices" not in said, error
    assert len(groups(tmp_path / "w")) >= 2
