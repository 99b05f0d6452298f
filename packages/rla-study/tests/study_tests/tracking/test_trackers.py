"""Trackers: what each update logs, where it lies, and that iterations continue each other's curves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from rla_study.tracking import Trackers, TrackingConfig, service_arguments
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rla.config import config_digest, resolved
from rla.errors import UserError
from stages import STAGES
from tests.unit.builders import configured
from tests.unit.pipeline.test_run_identity import planned
from tests.unit.training.builders import call_stage

DEFAULT = TrackingConfig().trackers


def track(run: Path, updates: Sequence[dict[str, Any]], *, trackers: Sequence[str] = DEFAULT) -> None:
    """One call of train-policy that makes `updates`."""
    with Trackers(trackers=trackers, run=run, stage="train-policy") as log:
        for metrics in updates:
            log(metrics)


def curves(run: Path, stage: str = "train-policy") -> dict[str, list[tuple[int, float]]]:
    """(step, value) of every tag, as TensorBoard reads them."""
    found = EventAccumulator(str(run / "tensorboard" / stage), size_guidance={"scalars": 0})
    found.Reload()
    return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def grow_old(run: Path) -> None:
    """Event files are read by the second in their names: what was written so far comes from an earlier one."""
    for file in run.glob("tensorboard/*/events.*"):
        *name, second, rest = file.name.split(".", 4)
        file.rename(file.with_name(".".join([*name, f"{int(second) - 60:010}", rest])))


def missing(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`package` is not installed, the others are."""

    def distribution(name: str) -> None:
        if name == package:
            raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", distribution)


def test_every_number_of_an_update_is_a_point_at_its_step(tmp_path: Path) -> None:
    track(tmp_path, [{"update": 1, "loss": 0.5, "tokens": 7, "note": "none"}, {"update": 2, "loss": 0.25, "tokens": 9}])
    assert curves(tmp_path) == {
        "train-policy/loss": [(1, 0.5), (2, 0.25)],
        "train-policy/tokens": [(1, 7.0), (2, 9.0)],
    }


def test_the_stage_logs_what_the_checkpoints_metrics_hold_and_iterations_go_on(tmp_path: Path) -> None:
    for iteration in (1, 2):
        call_stage(tmp_path, iteration=iteration)
        grow_old(tmp_path)
    lines = [tmp_path / str(iteration) / "policy/metrics.jsonl" for iteration in (1, 2)]
    stored = [json.loads(line) for file in lines for line in file.read_text().splitlines()]
    assert [one["update"] for one in stored] == [1, 2, 3, 4]
    shown = curves(tmp_path)
    assert shown.keys() == {f"train-policy/{key}" for key in stored[0] if key != "update"}
    for key in ("loss", "grad_norm", "tokens"):
        expected = [(one["update"], pytest.approx(one[key], rel=1e-6)) for one in stored]
        assert shown[f"train-policy/{key}"] == expected


def test_each_update_can_be_seen_before_the_stage_ends(tmp_path: Path) -> None:
    with Trackers(trackers=DEFAULT, run=tmp_path, stage="train-rm") as log:
        log({"update": 8, "loss": 1.0})
        assert curves(tmp_path, "train-rm") == {"train-rm/loss": [(8, 1.0)]}


def test_repeated_updates_replace_those_of_the_call_before(tmp_path: Path) -> None:
    track(tmp_path, [{"update": step, "loss": 1.0} for step in (1, 2, 3)])
    grow_old(tmp_path)
    track(tmp_path, [{"update": step, "loss": 2.0} for step in (3, 4)])
    assert curves(tmp_path)["train-policy/loss"] == [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0)]


def test_an_error_in_the_stage_closes_the_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = pytest.importorskip("accelerate.tracking")
    calls: list[str] = []

    class Service:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: calls.append(name)

    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "wandb", Service)
    monkeypatch.setattr("rla_study.tracking.refuse_missing", lambda name: None)
    trackers = Trackers(trackers=["wandb"], run=tmp_path, stage="train-policy")
    with pytest.raises(RuntimeError, match="a defect"), trackers as log:
        log({"update": 1, "loss": 1.0})
        raise RuntimeError("a defect")
    assert calls == ["start", "log", "finish"]


def test_a_full_disk_under_the_curves_is_one_error(tmp_path: Path) -> None:
    trackers = Trackers(trackers=DEFAULT, run=tmp_path, stage="train-rm")
    with pytest.raises(UserError, match=r"tensorboard/train-rm: cannot be written \(No space left"), trackers as log:
        log({"update": 1, "loss": 1.0})
        (events,) = (tmp_path / "tensorboard/train-rm").iterdir()
        events.unlink()
        events.symlink_to("/dev/full")
        log({"update": 2, "loss": 1.0})


def test_without_a_tracker_nothing_is_written(tmp_path: Path) -> None:
    call_stage(tmp_path / "none", overrides=["tracking.trackers=[]"])
    call_stage(tmp_path / "default")
    assert {path.name for path in (tmp_path / "default").iterdir()} == {
        "init",
        "data",
        "rewards",
        "1",
        "config.yaml",
        "tensorboard",
    }
    assert {path.name for path in (tmp_path / "none").iterdir()} == {"init", "data", "rewards", "1", "config.yaml"}


def test_a_stage_without_updates_writes_nothing(tmp_path: Path) -> None:
    track(tmp_path, [])
    assert not any(tmp_path.iterdir())


def test_only_the_first_process_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (1, 0):
        assert not (tmp_path / "tensorboard").exists()
        monkeypatch.setattr("rla.training.stage.rank", lambda index=rank: index)
        call_stage(tmp_path, iteration=2 - rank)
    assert [step for step, _ in curves(tmp_path)["train-policy/loss"]] == [3, 4]  # of the second iteration


@pytest.mark.parametrize(
    ("name", "remedy"), [("wandb", r"rla-study\[wandb\]"), ("tensorboard", "pip install tensorboard")]
)
def test_a_missing_package_is_said_before_anything_is_read_or_trained(
    name: Any, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing(name, monkeypatch)
    with pytest.raises(UserError, match=rf"tracking\.trackers: {name} needs the package {name}.*{remedy}"):
        call_stage(tmp_path, overrides=[f"tracking.trackers=[{name}]"], sequences=lambda: pytest.fail("data was read"))
    assert not (tmp_path / "1").exists()


def test_a_package_that_no_tracker_needs_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing("wandb", monkeypatch)
    track(tmp_path, [{"update": 1, "loss": 0.5}])
    assert curves(tmp_path)


def test_a_folder_named_like_a_package_is_not_that_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B makes a folder of its own name in the working directory, which Python would import."""
    (tmp_path / "no_such_tracker").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    __import__("no_such_tracker")
    with pytest.raises(UserError, match="which is not installed"):
        track(tmp_path, [], trackers=["no_such_tracker"])


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(UserError, match=r"tracking\.trackers is 'mlflow'; choose one of tensorboard, wandb, trackio"):
        configured("tracking.trackers=[tensorboard, mlflow]")
    found = [resolved(configured(*overrides))["tracking"] for overrides in ((), ("tracking.trackers=[]",))]
    assert found == [{"trackers": ["tensorboard"]}, {"trackers": []}]


@pytest.mark.parametrize("spec", STAGES, ids=[spec.name for spec in STAGES])
def test_no_output_grows_stale_by_another_tracker(spec: Any) -> None:
    base, other = configured(), configured("tracking.trackers=[wandb]")
    assert base != other
    assert not any(path.startswith("tracking") for path in spec.sections)
    if spec.sections:
        assert config_digest(base, spec.sections) == config_digest(other, spec.sections)


def test_a_run_keeps_its_name_with_other_trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert planned(tmp_path, "tracking.trackers=[]") == planned(tmp_path) == "runs/alfworld-tiny"


def test_wandb_and_trackio_resume_the_run_of_the_folder_and_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "p")
    monkeypatch.delenv("TRACKIO_PROJECT", raising=False)
    first, again = (
        [service_arguments(name, run=tmp_path / "a", stage="train-rm") for name in ("wandb", "trackio")] for _ in "12"
    )
    assert first == again
    project, options = first[0]
    assert (project, options["resume"], options["group"], options["dir"]) == ("p", "allow", "a", str(tmp_path / "a"))
    assert first[1] == ("rla", {"group": "a", "resume": "allow", "name": f"a-{options['id']}"})
    others = [
        service_arguments("wandb", run=tmp_path / run, stage=stage)[1]["id"]
        for run, stage in (("a", "train-policy"), ("b", "train-rm"))
    ]
    assert len({options["id"], *others}) == 3


def test_trackers_are_imported_by_training_alone() -> None:
    code = "import sys, rla_study.tracking, rla.training.stage; "
    code += "sys.exit(any(name in sys.modules for name in ('torch', 'accelerate', 'tensorboard')))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
