"""`bench-peer` on a world so small that it measures nothing: all three arms train, and the report has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from study_tests.bench.peer.plan import CHOICE_SEED, Arm

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[5]


def called(root: Path, *more: str) -> str:
    command = [sys.executable, "-m", "study_tests.bench.bench_peer", "--quick", "--root", str(root), *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def lines_of(root: Path) -> dict[str, list[str]]:
    return {file.parent.name: file.read_text().splitlines() for file in root.glob("cells/*/rows.jsonl")}


def test_all_arms_train_play_and_are_reported_and_a_second_call_goes_on(tmp_path: Path) -> None:
    said = called(tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    assert set(report["arms"]) == set(Arm)
    for arm, made in report["arms"].items():
        ((begin, first, last),) = made["curves"]
        assert begin == [0, report["start"]]
        if arm != Arm.LOOP:  # which also plays the tasks that it has proposed
            assert (first[0], last[0]) == (4, 8)
        assert sum(made["parts"]["tokens"].values()) > 0
        assert made["peak_mib"] > 100
    assert "TRL GRPOTrainer, learning rate" in said

    # Two rates were tried for each arm, for one iteration; then two iterations of the report's only seed.
    made = lines_of(tmp_path)
    tried = {name: lines for name, lines in made.items() if name.endswith(f"seed{CHOICE_SEED}")}
    assert len(tried) == 6
    assert {len(lines) for lines in tried.values()} == {1}
    assert {len(lines) for name, lines in made.items() if name not in tried} == {2}

    # More iterations: every cell goes on from where it stands, TRL's from its own checkpoint.
    called(tmp_path, "--iterations", "3")
    longer = lines_of(tmp_path)
    for name in made.keys() - tried.keys():
        assert longer[name][:2] == made[name]
        assert json.loads(longer[name][2])["iteration"] == 3
