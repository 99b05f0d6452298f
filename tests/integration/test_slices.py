"""`--slice` and `--workers` at the command line: the same shards, whoever makes which part of them."""

import json
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from rla.store.layout import resource
from rla.store.manifest import MANIFEST
from rla.store.reading import read_rows
from tests.integration.conftest import Rla, rla_in, stages
from tests.integration.pipelines import PARAMS, alive, contents, environment, until
from tests.integration.test_stage_kill import LARGER, STAGES

pytestmark = pytest.mark.usefixtures("forked_python")
OWN_PYTHON = sys.executable  # which that fixture replaces


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose shards are each made by one call."""
    folder = tmp_path_factory.mktemp("whole")
    with rla_in(folder, PARAMS) as rla:
        stages(rla, *STAGES, "evaluate")
    return folder / "r"


@pytest.fixture
def made(rla: Rla, whole: Path, tmp_path: Path) -> Path:
    """A copy of it, the run `r` of the working folder."""
    return shutil.copytree(whole, tmp_path / "r", symlinks=True)


def parts_and_manifest(folder: Path) -> dict[str, str]:
    return {name: digest for name, digest in contents(folder).items() if not name.startswith("_manifest-")}


def test_scripted_slices_are_a_whole_run_byte_by_byte(rla: Rla, made: Path, tmp_path: Path) -> None:
    for stage, name in STAGES.items():
        for index in (3, 1, 2):
            code, said, _ = rla(stage, "--run", "r", "--out", "sliced", "--slice", f"{index}/3")
            assert code == 0
            assert f"missing slices: {'1/3, 2/3' if index == 3 else '2/3'}" in said or index == 2
        assert parts_and_manifest(tmp_path / "sliced") == contents(made / "1" / name)
        assert rla(stage, "--run", "r", "--out", "sliced", "--slice", "1/3")[0] == 0
        (tmp_path / "sliced").rename(tmp_path / f"sliced-{name}")


def test_slices_of_a_real_model_say_what_a_whole_run_says(rla: Rla, tmp_path: Path) -> None:
    real = ("--set", "generator.backend=transformers", "--set", "generator.max_sequences=8", "--run", "r")
    for stage, name in STAGES.items():
        assert rla(stage, *real)[0] == 0
        for index in (1, 2, 3):
            assert rla(stage, *real, "--out", name, "--slice", f"{index}/3")[0] == 0
        whole, sliced = (read_rows(folder, name) for folder in (tmp_path / "r/1" / name, tmp_path / name))
        assert len(whole) > 15 and sliced == close(whole)


class Near(float):
    """Log-probabilities differ in the last digits: other rows in a forward pass, another order of additions."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(float(self) - float(other)) < 1e-5

    __hash__ = float.__hash__


def close(value: object) -> object:
    if isinstance(value, dict):
        return {key: close(item) for key, item in value.items()}
    if isinstance(value, list):
        return [close(item) for item in value]
    return Near(value) if isinstance(value, float) else value


def test_the_next_stage_is_told_which_slice_is_missing(rla: Rla) -> None:
    assert rla("make-tasks", "--run", "r", "--split", "train")[0] == rla("init-model", "--run", "r")[0] == 0
    assert rla("rollout", "--run", "r", "--slice", "1/2")[0] == 0
    code, _, error = rla("score-steps", "--run", "r")
    assert code == 2 and "no manifest of slice 2/2" in error
    code, said, _ = rla("rollout", "--run", "r", "--slice", "1/3")
    assert code == 0 and "missing slices: 2/3, 3/3" in said
    code, _, error = rla("rollout", "--run", "r", "--slice", "3/2")
    assert code == 2 and "--slice 3/2: expected i/n" in error
    code, _, error = rla("rollout", "--run", "r", "--slice", "2/2", "--workers", "2")
    assert code == 2 and "give one of them" in error


def test_a_slice_does_not_make_what_all_of_them_read(rla: Rla, tmp_path: Path) -> None:
    code, _, error = rla("rollout", "--run", "r", "--slice", "1/2")
    assert code == 2 and "call `rla make-tasks --run r` first" in error
    assert not (tmp_path / "r").exists()


def test_workers_that_fail_are_named_and_what_the_others_made_is_kept(rla: Rla, made: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "w/.part-00001.parquet.tmp"  # slice 2 of 3 cannot write its first part
    blocked.mkdir(parents=True)
    code, _, error = rla("rollout", "--run", "r", "--out", "w", "--workers", "3")
    assert code == 2 and "part-00001.parquet: cannot be written" in error
    assert "1 of 3 workers failed, slices 2/3 (exit status 2)" in error
    assert "[2/3] error: " in error and len(list((tmp_path / "w").glob("_manifest-*-of-3.parquet"))) == 2
    blocked.rmdir()
    code, said, _ = rla("rollout", "--run", "r", "--out", "w", "--workers", "3")
    assert code == 0 and "episodes: 16" in said
    assert parts_and_manifest(tmp_path / "w") == contents(made / "1/trajectories")


@pytest.mark.skipif(find_spec("vllm") is not None, reason="the workers have to fail")
def test_workers_replace_a_shard_when_they_have_a_part_and_not_before(rla: Rla, made: Path) -> None:
    before = contents(made / "1/trajectories")
    again = ("rollout", "--run", "r", "--workers", "2", "--overwrite")
    code, _, error = rla(*again, "--set", "generator.backend=vllm")
    assert code == 2 and "2 of 2 workers failed" in error
    assert contents(made / "1/trajectories") == before
    code, _, error = rla(*again, "--seed", "4")
    assert code == 0 and error.count("of another origin") == 1
    assert contents(made / "1/trajectories") != before


def test_the_config_sets_the_number_of_workers_and_no_output_shows_it(rla: Rla, made: Path, tmp_path: Path) -> None:
    shards = {"rollout": "1/trajectories", "score-steps": "1/scores", "evaluate": "eval/0/trajectories"}
    shutil.copytree(made, tmp_path / "w", ignore=shutil.ignore_patterns("1", "eval", "timings"))
    for stage, place in shards.items():
        code, said, error = rla(stage, "--run", "w", "--set", "generator.data_parallel=2")
        assert code == 0 and f"{stage}: 2 workers" in error and "missing slices" not in said
        assert len(list((tmp_path / "w" / place).glob("_manifest-*-of-2.parquet"))) == 2
        assert parts_and_manifest(tmp_path / "w" / place) == contents(made / place)
        assert rla(stage, "--run", "w")[0] == 0  # complete, whatever made it
    measured = [json.loads((tmp_path / run / "eval/0/metrics.json").read_text()) for run in "rw"]
    assert measured[0] | {"seconds": 0} == measured[1] | {"seconds": 0}


def test_evaluate_measures_when_its_last_slice_is_there(rla: Rla, made: Path, tmp_path: Path) -> None:
    for index, missing in (("2", "1/2"), ("1", None)):
        code, said, _ = rla("evaluate", "--run", "r", "--out", "e", "--metrics", "m.json", "--slice", f"{index}/2")
        assert code == 0 and (f"missing slices: {missing}" in said) is (missing is not None)
        assert (tmp_path / "m.json").exists() is (missing is None)
    assert parts_and_manifest(tmp_path / "e") == contents(made / "eval/0/trajectories")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for children in /proc")
def test_workers_end_with_the_call_that_started_them(rla: Rla, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(LARGER.replace("rollouts_per_task: 8", "rollouts_per_task: 64"))
    assert rla("rollout", "--run", "r")[0] == 0
    call = [OWN_PYTHON, "-m", "rla", "rollout", "--run", "r", "--out", "w", "--workers", "2"]
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        before = parts(tmp_path / "w")
        process = subprocess.Popen(call, cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL)
        until(lambda: parts(tmp_path / "w") > before, seconds=60)  # noqa: B023
        workers = children(process.pid)
        assert len(workers) == 2 and all(map(alive, workers))
        process.send_signal(number)
        until(lambda: not any(map(alive, workers)), seconds=30)  # noqa: B023
        assert process.wait(30) in (-number, 128 + number)
    assert not (tmp_path / "w" / MANIFEST).exists()
    for index in (1, 2):
        assert rla("rollout", "--run", "r", "--out", "w", "--slice", f"{index}/2")[0] == 0
    assert parts_and_manifest(tmp_path / "w") == contents(tmp_path / "r/1/trajectories")


def parts(folder: Path) -> int:
    return len(list(folder.glob("part-*")))


def test_each_task_of_the_slurm_array_makes_its_slice(made: Path, tmp_path: Path) -> None:
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").write_text("")
    script = resource("pipelines/slurm/rollout.sbatch")
    asked = {"SLURM_SUBMIT_DIR": str(tmp_path), "PARAMS": "params.yaml", "RUN": "r", "SLICES": "2"}
    for stage, name in STAGES.items():
        calm = (made / "1" / name).rename(tmp_path / name)
        for index in ("2", "1"):
            variables = environment() | asked | {"STAGE": stage, "SLURM_ARRAY_TASK_ID": index}
            subprocess.run(["bash", str(script)], env=variables, check=True, capture_output=True, timeout=120)
        assert parts_and_manifest(made / "1" / name) == contents(calm)
