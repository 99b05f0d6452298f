"""Bad input at the command line: one clear line that names the file and the remedy, exit code 2, nothing lost."""

import json
import math
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rla.cli.app import run
from rla.store.manifest import MANIFEST, digest, read_json, read_run_config
from rla.store.reading import read_rows
from rla.store.shards import Origin, part_entry, write_shard
from tests.integration.pipelines import PARAMS
from tests.unit.store.shard_damage import contents_of, edit_record

RunRla = Callable[..., tuple[int, str]]


@pytest.fixture
def rla(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> RunRla:
    """Calls the command line in a folder with params.yaml; returns the exit code and what went to stderr."""
    (tmp_path / "params.yaml").write_text(PARAMS)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str]:
        capfd.readouterr()
        code = run([*arguments])
        return code, capfd.readouterr().err

    return call


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run that has been played, and the same run trained. Nobody won its episodes: the judgements alone train."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("params.yaml").write_text(PARAMS)
        assert run(["rollout", "--env", "alfworld", "--run", "r"]) == 0
        shutil.copytree("r", "played")
        for stage in ("score-steps", "validate-tasks", "compute-rewards", "train-policy", "train-rm"):
            assert run([stage, "--run", "r", "--set", "credit.estimator=step"]) == 0
    updates = [json.loads((folder / f"r/1/{name}/checkpoint.json").read_text())["updates"] for name in ("policy", "rm")]
    assert all(updates)
    return folder / "played", folder / "r"


@pytest.fixture
def played(rla: RunRla, tmp_path: Path, runs: tuple[Path, Path]) -> Path:
    """A run with tasks, models and the first iteration's trajectories."""
    return shutil.copytree(runs[0], tmp_path / "r", symlinks=True)


def refused(result: tuple[int, str], *parts: str) -> None:
    code, error = result
    lines = [line for line in error.splitlines() if line.startswith("error:")]
    assert code == 2 and len(lines) == 1, (code, error)
    assert "Traceback" not in error
    for part in parts:
        assert part in lines[0], lines[0]


def test_a_rollout_works_in_a_fresh_folder(played: Path) -> None:
    manifest = read_json(played / "1/trajectories" / MANIFEST)
    assert manifest["counts"]["episodes"] == 16 and manifest["counts"]["env_errors"] == 0


@pytest.mark.parametrize(
    ("stage", "before"), [("score-steps", "rollout"), ("train-policy", "rollout"), ("train-rm", "score-steps")]
)
def test_a_stage_without_its_input_makes_nothing(rla: RunRla, tmp_path: Path, stage: str, before: str) -> None:
    refused(rla(stage, "--run", "r"), f"does not exist; run `rla {before} --run r --iteration 1`")
    assert not (tmp_path / "r").exists()


def test_a_truncated_part(rla: RunRla, played: Path) -> None:
    part = next((played / "1/trajectories").glob("part-*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])
    refused(rla("score-steps", "--run", "r"), part.name, "truncated", "rerun `rla rollout --run r --iteration 1`")


def test_another_schema_version(rla: RunRla, played: Path) -> None:
    place = played / "1/trajectories" / MANIFEST
    edit_record(place, lambda manifest: manifest | {"schema_version": 7})
    refused(rla("score-steps", "--run", "r"), str(Path("r/1/trajectories") / MANIFEST), "schema version 7")


def test_a_manifest_that_does_not_match(rla: RunRla, played: Path) -> None:
    next((played / "1/trajectories").glob("part-*.parquet")).unlink()
    refused(rla("score-steps", "--run", "r"), f"no bytes, {MANIFEST} says", "rerun")


def test_a_model_without_tokenizer(rla: RunRla, played: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (played / "init/policy" / name).unlink()
    refused(rla("rollout", "--run", "r", "--iteration", "1", "--overwrite", "--seed", "9"), "tokenizer")


def test_rewards_that_an_ended_call_has_left_do_not_train(rla: RunRla, trained: Path) -> None:
    """`compute-rewards` was refused after other trajectories and scores had been made."""
    other = ("--run", "r", "--seed", "9", "--overwrite")
    for stage in ("rollout", "score-steps", "validate-tasks"):
        assert rla(stage, *other)[0] == 0
    before = digest(trained / "1/rewards/rm")
    (trained / "1/rewards/policy/thesis.md").write_text("years of work")
    refused(rla("compute-rewards", *other), "holds what rla did not write (thesis.md)")
    assert digest(trained / "1/rewards/rm") == before
    for stage, source in (("train-rm", "scores"), ("train-policy", "trajectories")):
        refused(rla(stage, *other), "not made from", source, "call `rla compute-rewards --run r --iteration 1` again")
    (trained / "1/rewards/policy/thesis.md").unlink()
    assert rla("compute-rewards", *other)[0] == rla("train-rm", *other)[0] == 0


def test_an_unknown_key(rla: RunRla, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("rollout: {episodes: 3}")
    refused(rla("rollout"), "params.yaml", "unknown key rollout.episodes", "known:")


def test_a_game_file_that_is_not_one(rla: RunRla, tmp_path: Path) -> None:
    game = tmp_path / "data/json_2.1.1/train/pick-Mug-None-Desk-301/trial_1/game.tw-pddl"
    game.parent.mkdir(parents=True)
    game.write_text(json.dumps({"solvable": True, "pddl_problem": "(nonsense)", "grammar": "", "pddl_domain": ""}))
    refused(rla("make-tasks", "--from", "data", "--split", "train"), "game.tw-pddl")
    game.write_text("not json")
    refused(rla("make-tasks", "--from", "data", "--split", "train"), "game.tw-pddl")


@pytest.mark.parametrize("stage", ["init-model", "warm-start", "rollout"])
def test_tasks_of_another_environment(stage: str, rla: RunRla, played: Path) -> None:
    rows = [row | {"env": "coding"} for row in read_rows(played / "0/pool", "tasks")]
    write_shard(played / "coding", "tasks", rows, Origin(config="c", inputs={}, seed=0))
    pool = "--pool" if stage == "rollout" else "--tasks"
    said = rla(stage, "--run", "r", pool, "r/coding", "--overwrite")
    refused(said, "r/coding: its tasks are of the environment coding, and env.name is alfworld", "give --env coding")


def test_an_empty_pool(rla: RunRla, played: Path) -> None:
    write_shard(played / "empty", "tasks", [], Origin(config="", inputs={}, seed=0))
    refused(
        rla("rollout", "--run", "r", "--pool", "r/empty", "--overwrite"), "the task pool is empty", "rla make-tasks"
    )


def test_a_rerun_with_other_settings(rla: RunRla, played: Path) -> None:
    before = digest(played / "1/trajectories")
    refused(
        rla("rollout", "--run", "r", "--set", "rollout.rollouts_per_task=5"),
        str(Path("r/1/trajectories")),
        "made with rollout.rollouts_per_task",
        "this call has 5",
        "--overwrite",
    )
    assert digest(played / "1/trajectories") == before


def test_a_replacement_that_cannot_begin_leaves_the_old_shard(
    rla: RunRla, played: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)  # as where the package is missing
    place = played / "1/trajectories"
    before = contents_of(place)
    call = ("rollout", "--run", "r", "--set", "generator.backend=vllm", "--overwrite")
    refused(rla(*call), "install the extra rla[vllm]")
    assert contents_of(place) == before and len(read_rows(place, "trajectories")) == 16
    assert read_run_config(played)["generator"]["backend"] == "scripted"


def test_a_folder_that_is_not_there(rla: RunRla, played: Path) -> None:
    refused(rla("score-steps", "--run", "r", "--trajectories", "nowhere"), "nowhere", "does not exist")


@pytest.fixture
def trained(rla: RunRla, tmp_path: Path, runs: tuple[Path, Path]) -> Path:
    return shutil.copytree(runs[1], tmp_path / "r", symlinks=True)


# What `train-policy` is called with to go on from the first iteration's checkpoint on the first iteration's shards.
ON = ("--iteration", "2", "--run", "r", "--trajectories", "r/1/trajectories", "--rewards", "r/1/rewards/policy")


def test_a_checkpoint_with_another_tokenizer(rla: RunRla, trained: Path) -> None:
    other = ("--run", "other", "--set", "tasks.train_scenes=1", "--set", "tasks.kinds=[pick_and_place_simple]")
    assert rla("init-model", *other)[0] == 0
    for model in ("policy", "rm"):
        (trained.parent / f"other/init/{model}/model.safetensors").unlink()  # nothing comes to loading it
    message = ("made with another tokenizer", "train the checkpoint that made the shard")
    refused(rla("train-policy", *ON, "--policy", "other/init/policy"), f"r/1/trajectories/{MANIFEST}", *message)
    scores = ("--scores", "r/1/scores", "--rewards", "r/1/rewards/rm")
    refused(
        rla("train-rm", "--iteration", "2", "--run", "r", *scores, "--rm", "other/init/rm"),
        f"r/1/scores/{MANIFEST}",
        *message,
    )
    assert not (trained / "2/policy").exists() and not (trained / "2/rm").exists()


def rewrite(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The rows of a shard of one part, changed, with a manifest that fits them."""
    part = folder / "part-00000.parquet"
    table = pq.ParquetFile(part).read()
    pq.write_table(pa.Table.from_pylist([change(row) for row in table.to_pylist()], schema=table.schema), part)
    edit_record(folder / MANIFEST, lambda manifest: manifest | {"parts": [part_entry(part)]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"advantage": math.nan}, "is nan; run compute-rewards again"),
        ({"trajectory_id": "of-another-run"}, "there twice"),
        ({"step": 99}, "not among the trajectories"),
    ],
)
def test_rewards_that_cannot_be_right(rla: RunRla, trained: Path, change: dict[str, Any], message: str) -> None:
    first = iter([change])  # of one row; the others stay
    all_rows = change.keys() == {"trajectory_id"}
    rewrite(trained / "1/rewards/policy", lambda row: row | (change if all_rows else next(first, {})))
    (trained / "1/policy/model/model.safetensors").unlink()  # nothing comes to loading it
    where = "r/1/trajectories with r/1/rewards/policy"
    refused(rla("train-policy", *ON), where, message)
    assert not (trained / "2/policy").exists() and not (trained / "2/policy.partial").exists()


def test_a_checkpoint_trained_from_another_has_its_tokenizer(rla: RunRla, trained: Path) -> None:
    assert rla("train-policy", *ON)[0] == 0  # the checkpoint of iteration 1


def test_a_shard_that_records_no_tokenizer_trains(rla: RunRla, trained: Path) -> None:
    place = trained / "1/trajectories" / MANIFEST
    assert len(read_json(place)["tokenizer"]) == 16
    edit_record(place, lambda manifest: {key: value for key, value in manifest.items() if key != "tokenizer"})
    for model in ("policy", "rm"):
        edit_record(trained / "1/rewards" / model / MANIFEST, lambda manifest: manifest | {"input_digests": {}})
    assert rla("train-policy", *ON)[0] == 0


def test_a_trained_checkpoint_without_its_state(rla: RunRla, trained: Path) -> None:
    weights = Path("r/1/policy/state/weights.safetensors")
    (trained.parent / weights).unlink()
    (trained / "1/policy/model/model.safetensors").rename(trained / "weights")  # nothing comes to loading it
    refused(rla("train-policy", *ON), str(weights.parent), "its weights are missing", "restore them")
    (trained / "weights").rename(trained / "1/policy/model/model.safetensors")
    assert rla("train-policy", *ON, "--policy", "r/1/policy/model")[0] == 0  # one remedy that the message names
    assert rla("evaluate", "--run", "r")[0] == 0  # inference needs no state


def test_a_full_disk_while_a_checkpoint_is_written(rla: RunRla, trained: Path) -> None:
    """The system's limit on the size of a file stands for the disk. Safetensors is written by a library in Rust."""
    again = ("train-rm", "--run", "r", "--out", "r/full", "--set", "credit.estimator=step")
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, most))
    try:
        result = rla(*again)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    refused(result, "call the command again")
    assert not (trained / "full").exists()
    assert rla(*again)[0] == 0


def test_a_folder_that_cannot_be_made(rla: RunRla, trained: Path) -> None:
    (trained / "file").write_text("")
    for stage in ("rollout", "train-rm", "init-model"):
        out = "--policy" if stage == "init-model" else "--out"
        refused(rla(stage, "--run", "r", out, "r/file/below", "--set", "credit.estimator=step"), "r/file", "directory")
