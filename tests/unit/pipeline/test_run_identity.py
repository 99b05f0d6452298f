"""The name of a run, and when a plan refuses one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from rla.config import resolved
from rla.envs.registry import load_config
from rla.errors import UserError
from rla.pipeline.plan import Plan, write_plan
from rla.store.layout import artifact, resource
from rla.store.manifest import STARTED, update_run_config, write_run_config
from rla.store.shards import Origin, write_shard
from stages import STAGES
from tests.unit.builders import task

PARAMS = resource("params.yaml")


def planned(folder: Path, *overrides: str, iterations: int = 2, **changes: object) -> str:
    """The run that `rla plan` writes down."""
    plan = Plan(iterations=iterations, params=PARAMS, overrides=overrides, **changes)  # type: ignore[arg-type]
    write_plan(plan, folder / "iterations.yaml", stages=STAGES)
    return str(yaml.safe_load((folder / "iterations.yaml").read_text())["run"])


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ((), "alfworld-tiny"),
        (("credit.step_weight=0.5",), "alfworld-tiny-credit.step_weight-0.5"),
        (("credit.step_weight=5e-1",), "alfworld-tiny-credit.step_weight-0.5"),
        (
            ("train_rm.enabled=false", "credit.step_weight=0.5"),
            "alfworld-tiny-credit.step_weight-0.5-train_rm.enabled-False",
        ),
        (("guards.stop=[no-action]", "pool.workers=2"), "alfworld-tiny"),
        (("seed=9", "credit.step_weight=0.5"), "alfworld-tiny-seed9-credit.step_weight-0.5"),
    ],
)
def test_a_run_is_named_by_what_its_overrides_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert planned(tmp_path, *overrides) == f"runs/{name}"


def test_a_seed_names_a_run_in_one_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert planned(tmp_path, "seed=9") == planned(tmp_path, seed=9) == "runs/alfworld-tiny-seed9"
    assert planned(tmp_path, "seed=8", seed=9) == "runs/alfworld-tiny-seed9"  # the option counts, as in every stage


def test_a_name_that_cannot_say_all_ends_with_a_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = (planned(tmp_path, f"model.policy={name}") for name in ("a/../b", "a/.. b"))
    assert one != other and {Path(each).parent for each in (one, other)} == {Path("runs")}
    assert one.startswith("runs/alfworld-tiny-model.policy-a-..-b-")
    assert planned(tmp_path, "train_rm={enabled: false}").startswith("runs/alfworld-tiny-train_rm.")  # a whole section
    assert len(Path(planned(tmp_path, f"model.policy={'x' * 500}")).name) < 70


def test_the_name_of_many_overrides_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the first keys whole, and a digest, so that other values are another run."""
    monkeypatch.chdir(tmp_path)
    others = ("rollout.tasks_per_iteration=8", "rollout.rollouts_per_task=4", "warm_start.policy.steps=20")
    one, other = (planned(tmp_path, "evaluation.rollouts_per_task=1", f"judge.votes={n}", *others) for n in (2, 5))
    assert one.startswith("runs/alfworld-tiny-evaluation.rollouts_per_task-1-") and one != other
    assert len(Path(one).name) < 65


def made(run: Path, *names: str) -> None:
    """Outputs of a stage that was killed before it had finished them."""
    for name in names:
        part = artifact(run, name, 1) / "part-00000.parquet"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(b"")


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of the small params that has its tasks."""
    monkeypatch.chdir(tmp_path)
    write_run_config(tmp_path / "runs/x", resolved(load_config(PARAMS)))
    write_shard(tmp_path / "runs/x/0/pool", "tasks", [task("t").row()], Origin(config="c", inputs={}, seed=0))
    return tmp_path


@pytest.fixture
def finished(begun: Path) -> Path:
    """The same with outputs of a rollout and of what makes rewards."""
    made(begun / "runs/x", "trajectories", "policy_rewards")
    return begun


X = Path("runs/x")


def test_a_run_of_other_parameters_is_refused_and_the_keys_are_named(finished: Path) -> None:
    said = r"runs/x: made with credit\.step_weight 1\.0, this call has 0\.5; name another run \(--run, make run RUN="
    with pytest.raises(UserError, match=said):
        planned(finished, "credit.step_weight=0.5", run=X)
    assert not (finished / "iterations.yaml").exists()
    with pytest.raises(UserError, match="made with seed 0, this call has 3"):
        planned(finished, run=X, seed=3)
    assert planned(finished, "credit.step_weight=0.5", run=X, overwrite=True) == "runs/x"


def test_a_run_may_grow_and_change_what_no_output_depends_on(finished: Path) -> None:
    upkeep = ("guards.stop=[no-action]", "generator.data_parallel=2", "checkpoints.keep=3")
    assert planned(finished, *upkeep, run=X, iterations=60) == "runs/x"


def test_a_run_that_has_made_nothing_is_not_refused(begun: Path) -> None:
    shutil.rmtree(begun / "runs/x/0")
    assert planned(begun, "tasks.tasks_per_scene=9", run=X) == "runs/x"
    (begun / "runs/x/0/pool").mkdir(parents=True)
    (begun / "runs/x/0/pool" / STARTED).write_bytes(b"")
    assert planned(begun, "tasks.tasks_per_scene=9", run=X) == "runs/x"


def test_parameters_count_once_a_stage_has_made_something_of_them(begun: Path) -> None:
    """Nothing was trained, so the rate of training may still change; the pool of tasks is there."""
    assert planned(begun, "train_policy.lr=0.5", run=X) == "runs/x"
    with pytest.raises(UserError, match=r"made with tasks\.tasks_per_scene \d+, this call has 9; name"):
        planned(begun, "tasks.tasks_per_scene=9", run=X)
    made(X, "first_policy")  # of the warm start
    assert planned(begun, "train_policy.lr=0.5", run=X) == "runs/x"
    made(X, "policy")
    with pytest.raises(UserError, match=r"made with train_policy\.lr \S+, this call has 0\.5; name"):
        planned(begun, "train_policy.lr=0.5", run=X)


def test_the_config_of_a_run_follows_the_stages_that_read_it(finished: Path) -> None:
    other = resolved(load_config(PARAMS, ["credit.step_weight=0.5", "policy.repeat_task=true", "policy.max_tokens=7"]))
    update_run_config(X, other, ["policy.max_tokens"])
    with pytest.raises(UserError, match=r"x: made with policy\.max_tokens 7, this call has \d+; name another"):
        planned(finished, run=X)
    update_run_config(X, other, ["credit", "policy"])
    assert planned(finished, "credit.step_weight=0.5", "policy.repeat_task=true", "policy.max_tokens=7", run=X)


def test_a_run_does_not_go_on_with_another_engine(finished: Path) -> None:
    with pytest.raises(UserError, match=r"made with generator\.backend transformers, this call has scripted; name"):
        planned(finished, "generator.backend=scripted", run=X)
