"""`launch.stage: slurm` at the command line, on the tests' own Slurm: shards as of a plain call, failures by number."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rla.pipeline import dividing
from rla.processes import slurm
from tests.integration.conftest import Rla
from tests.integration.pipelines import contents
from tests.integration.test_slices import parts_and_manifest
from tests.unit.processes import fake_slurm

ON_SLURM = ("--set", "launch.stage=slurm", "--set", "launch.slices=3")
SHARDS = {"rollout": "1/trajectories", "score-steps": "1/scores", "evaluate": "eval/0/trajectories"}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state of a cluster whose programs are first on PATH."""
    programs, state = fake_slurm.install(tmp_path / "bin"), tmp_path / "cluster"
    state.mkdir()
    monkeypatch.setenv("FAKE_SLURM", str(state))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    for module in (slurm, dividing):
        monkeypatch.setattr(module, "LATE", 1.0)
    return state


def submitted(cluster: Path) -> list[list[str]]:
    """The arguments of sbatch, of every job."""
    return [(job / "arguments").read_text().splitlines() for job in sorted(cluster.glob("[0-9]*"))]


def arrays(cluster: Path) -> list[str]:
    return [argument for job in submitted(cluster) for argument in job if argument.startswith("--array=")]


def plain_and_empty(rla: Rla, tmp_path: Path, *stages: str) -> None:
    """The run `r` with the shards of plain calls, and the run `w` with all that was there before them."""
    for stage in stages:
        assert rla(stage, "--run", "r")[0] == 0
    shutil.copytree(tmp_path / "r", tmp_path / "w", ignore=shutil.ignore_patterns("1", "eval", "timings"))


@pytest.mark.slow
def test_shards_of_an_array_are_those_of_plain_calls_byte_by_byte(rla: Rla, tmp_path: Path, cluster: Path) -> None:
    plain_and_empty(rla, tmp_path, *SHARDS)
    for stage, place in SHARDS.items():
        code, said, error = rla(stage, "--run", "w", *ON_SLURM, "--set", 'launch.sbatch=["--partition=gpu"]')
        assert code == 0 and "missing slices" not in said, error
        assert f"slices 1-3 of 3; logs: w/slurm/{int(stage != 'evaluate')}-{stage}-1/" in error
        assert parts_and_manifest(tmp_path / "w" / place) == contents(tmp_path / "r" / place)
        assert rla(stage, "--run", "w")[0] == 0  # complete, whatever made it
    assert "--partition=gpu" in submitted(cluster)[0] and arrays(cluster) == ["--array=1-3"] * 3


def test_a_failed_task_is_named_and_the_next_call_does_what_is_left(rla: Rla, tmp_path: Path, cluster: Path) -> None:
    plain_and_empty(rla, tmp_path, "rollout")
    blocked = tmp_path / "w/1/trajectories/.part-00001.parquet.tmp"  # slice 2 cannot write its first part
    blocked.mkdir(parents=True)
    code, _, error = rla("rollout", "--run", "w", *ON_SLURM)
    assert code == 2 and "rollout: 1 of 3 slices failed, slices 2/3 (exit status 2: error: " in error
    assert "part-00001.parquet: cannot be written" in error and "; w/slurm/1-rollout-1/2.log)" in error
    blocked.rmdir()
    code, said, error = rla("rollout", "--run", "w", *ON_SLURM)
    assert code == 0 and "episodes: 16" in said and "slices 2 of 3; logs: w/slurm/1-rollout-2/" in error
    assert arrays(cluster) == ["--array=1-3", "--array=2"]
    assert parts_and_manifest(tmp_path / "w" / SHARDS["rollout"]) == contents(tmp_path / "r" / SHARDS["rollout"])


@pytest.mark.slow
def test_a_single_slice_replaces_a_shard_of_other_parameters(rla: Rla, tmp_path: Path, cluster: Path) -> None:
    plain_and_empty(rla, tmp_path, "rollout")
    before = contents(tmp_path / "r/1/trajectories")
    code, _, error = rla("rollout", "--run", "r", "--seed", "4", "--overwrite", *ON_SLURM, "--set", "launch.slices=1")
    assert code == 0 and contents(tmp_path / "r/1/trajectories") != before, error
    assert rla("rollout", "--run", "r", "--seed", "4")[0] == 0


@pytest.mark.slow
def test_options_keep_a_call_here(rla: Rla, tmp_path: Path, cluster: Path) -> None:
    plain_and_empty(rla, tmp_path, "rollout")
    assert rla("rollout", "--run", "w", *ON_SLURM, "--slice", "1/3")[0] == 0
    assert rla("rollout", "--run", "w", "--out", "here", *ON_SLURM, "--workers", "2")[0] == 0
    assert arrays(cluster) == []
