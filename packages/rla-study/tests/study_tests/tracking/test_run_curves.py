"""Curves of a whole run: which points there are, and that none is doubled."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rla_study.tracking import CurvePoint, TrackingConfig, run_points, track_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rla.cli.app import run as rla
from rla.errors import UserError
from rla.metrics import custom
from rla.metrics.custom import Figure
from rla.report.tables import LOOP
from rla.store.atomic import write_json
from study_tests.tracking.test_trackers import missing

DEFAULT = TrackingConfig().trackers
NOON = 1_767_268_800.0


def measure(run: Path, iteration: int, **figures: float) -> None:
    file = run / f"{iteration}/metrics.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {"iteration": iteration, **figures})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two iterations, the first one timed; two held-out splits, evaluated at 0."""
    folder = tmp_path / "r"
    measure(folder, 1, success=0.25, reward_mean=-0.5, mu=1.25, rm_process_balanced=0.6, mean_steps=9)
    measure(folder, 2, success=0.5)
    for root, split, success in ((folder, "seen", 0.125), (folder / "splits/unseen", "unseen", 0.0)):
        (root / "eval/0").mkdir(parents=True)
        write_json(root / "eval/0/metrics.json", {"split": split, "success": success, "mean_steps": 20})
    (folder / "timings").mkdir()
    for stage, iteration in [*((stage, 1) for stage in LOOP), ("rollout", 2)]:
        call = {"started": "2026-01-01T12:00:00+00:00", "seconds": 1.5, "made": True, "origin": None, "peak": 3}
        call |= {"host": "one", "devices": []}
        write_json(
            folder / f"timings/{iteration}-{stage}.json",
            {"stage": stage, "iteration": iteration, "calls": [call, call], "versions": {}},
        )
    return folder


def shown(run: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of every tag, as TensorBoard reads them."""
    found = EventAccumulator(str(run / "tensorboard/iterations"), size_guidance={"scalars": 0})
    found.Reload()
    return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def show(run: Path) -> None:
    """A call, in a second of its own: files are read by the second in their names."""
    for file in (run / "tensorboard/iterations").glob("*"):
        *name, second, rest = file.name.split(".", 4)
        file.rename(file.with_name(".".join([*name, f"{int(second) - 60:010}", rest])))
    track_run(run, run_points(run), {"seed": 0}, DEFAULT)


def test_points_of_iterations_evaluations_and_seconds(run: Path) -> None:
    points = {point.key: point for point in run_points(run)}
    assert points["iteration/1"].values == {
        "success/training": 0.25,
        "reward/mean": -0.5,
        "judge/mu": 1.25,
        "judge/right about steps": 0.6,
        "episodes/steps": 9,
    }
    assert points["iteration/2"].values == {"success/training": 0.5}
    assert points["evaluation on seen/0"].values == {"success/seen": 0.125, "episodes/steps on seen": 20}
    assert points["evaluation on unseen/0"].values["success/unseen"] == 0.0
    # Each stage was called twice, for 1.5 s; the second iteration is not done.
    assert points["seconds/1"].values == {f"seconds/{stage}": 3.0 for stage in LOOP}
    assert "seconds/2" not in points and len(points) == 5


class Jumps:
    """What a package brings for trackers."""

    figures = (Figure(key="jumps", panel="Jumps", tag="body/jumps"),)

    def named(self, row: Mapping[str, Any]) -> dict[str, float]:
        return {"jumps@2": row["jumps"]}


def test_trackers_get_figures_with_a_tag_and_numbers_with_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custom, "registered_objects", lambda: {"jumps": Jumps()})
    for place in ("1", "eval/1"):
        (tmp_path / place).mkdir(parents=True)
        write_json(tmp_path / place / "metrics.json", {"success": 0.5, "split": "test", "jumps": 3})
    iteration, point = run_points(tmp_path)
    assert iteration.values["body/jumps"] == 3.0
    assert (point.values["body/jumps on test"], point.values["jumps@2/test"]) == (3.0, 3.0)


def test_tensorboard_shows_each_point_once_with_its_latest_value(run: Path) -> None:
    show(run)
    measure(run, 1, success=0.75)
    for _ in range(2):
        show(run)
    curves = shown(run)
    assert curves["success/training"] == [(1, 0.75), (2, 0.5)]
    assert curves["success/seen"] == [(0, 0.125)] and curves["seconds/rollout"] == [(1, 3.0)]
    assert curves["judge/mu"] == []  # it is not known any more


def test_event_files_go_once_they_are_old_and_no_viewer_reads_them(run: Path) -> None:
    files = run / "tensorboard/iterations"
    for count in (1, 2, 2):
        for file in files.glob("*"):
            os.utime(file, (NOON, NOON))
        show(run)
        assert len(list(files.iterdir())) == count
    show(run)
    assert len(list(files.iterdir())) == 2  # the oldest went
    show(run)
    assert len(list(files.iterdir())) == 3  # the others are young


def test_a_viewer_that_follows_forgets_the_points_of_the_call_before(run: Path) -> None:
    show(run)
    viewer = EventAccumulator(str(run / "tensorboard/iterations"))
    viewer.Reload()
    measure(run, 1, success=0.75)
    track_run(run, run_points(run), {}, DEFAULT)
    new = max((run / "tensorboard/iterations").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    new.rename(new.with_name(new.name.replace("tfevents.1", "tfevents.2", 1)))  # of a later second
    viewer.Reload()
    assert [(one.step, one.value) for one in viewer.Scalars("success/training")] == [(1, 0.75), (2, 0.5)]


class Service:
    """A tracker that notes what it is sent."""

    def __init__(self, sent: list[Any]) -> None:
        self.sent = sent

    def __call__(self, *_: object, **__: object) -> Service:
        return self

    @property
    def tracker(self) -> Service:
        return self

    def start(self) -> None: ...
    def finish(self) -> None: ...

    def define_metric(self, name: str, *, step_metric: str) -> None:
        self.sent.append((name, step_metric))

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.sent.append(values)

    def log(self, values: dict[str, float], step: int | None = None) -> None:
        self.sent.append((values, step))


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_service_gets_each_point_and_its_tables_once(name: Any, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = pytest.importorskip("accelerate.tracking")
    sent: list[Any] = []
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, name, Service(sent))
    monkeypatch.setattr("rla_study.tracking.refuse_missing", lambda name: None)
    table = [lambda service: {"episodes": f"a table of {service}"}]
    points = [CurvePoint(kind="iteration", iteration=i, values={"success": i / 4}, tables=table) for i in (1, 2, 3)]
    for known in (points[:2], points[:2], points):
        track_run(run, known, {"credit": {"step_weight": 0.3}, "trackers": ["wandb"]}, [name])
    steps = (None, None, None) if name == "wandb" else (1, 2, 3)
    values = [{"success": i / 4, "episodes": f"a table of {name}", "iteration": i} for i in (1, 2, 3)]
    logged = list(zip(values, steps, strict=True))
    begun = [{"credit.step_weight": 0.3, "trackers": "['wandb']"}, *([("*", "iteration")] if name == "wandb" else [])]
    assert sent == [*begun, *logged[:2], *begun, *logged[2:]]


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can have more than 50 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@pytest.fixture
def called(run: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stages that do nothing; the list says which ones were called."""
    calls: list[str] = []
    for module in ("stages.compute_rewards", "stages.evaluate", "stages.validate_tasks"):
        stage = ModuleType(module)
        stage.run = lambda ctx: calls.append(ctx.spec.name) or {}  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module, stage)
    monkeypatch.chdir(run.parent)
    return calls


@pytest.mark.parametrize(
    ("arguments", "tracked"),
    [
        (["compute-rewards", "--iteration", "2"], True),
        (["evaluate", "--iteration", "0"], True),
        (["validate-tasks"], False),
        (["compute-rewards", "--set", "tracking.trackers=[]"], False),
        (["compute-rewards", "--metrics", "elsewhere.json"], False),
        (["evaluate", "--slice", "1/2"], False),
    ],
)
def test_which_calls_show_the_curves(run: Path, called: list[str], arguments: list[str], tracked: bool) -> None:
    assert rla([*arguments, "--run", "r"]) == 0
    assert called == [arguments[0]]
    assert (run / "tensorboard").exists() is tracked


def test_a_missing_package_is_said_before_the_stage_works(
    run: Path, called: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing("trackio", monkeypatch)
    assert rla(["compute-rewards", "--run", "r", "--set", "tracking.trackers=[trackio]"]) == 2
    assert "trackio needs the package trackio" in capsys.readouterr().err and called == []


def test_a_damaged_file_of_another_iteration_stops_nothing(
    run: Path, called: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "1/policy").mkdir()
    (run / "1/policy/metrics.json").write_text("{")
    assert rla(["evaluate", "--run", "r"]) == 0
    assert "no curves: r/1/policy/metrics.json" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_stops_nothing_and_the_warnings_are_said(
    run: Path, called: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "tensorboard").write_text("")
    measure(run, 1, success=0.25, mu=1.2, p_plus=0.5)
    measure(run, 2, success=0.5, mu=0.9, p_plus=0.5)
    assert rla(["compute-rewards", "--iteration", "2", "--run", "r"]) == 0
    said = capsys.readouterr()
    assert "warning (useless-judge): mu is 0.90" in said.out
    assert said.err.count("no curves: r/tensorboard/iterations: cannot be written (") == 1


def test_a_full_disk_is_one_error(run: Path) -> None:
    with full_disk(), pytest.raises(UserError, match="iterations: cannot be written"):
        track_run(run, run_points(run), {}, DEFAULT)


def test_a_run_that_a_warning_stops_has_its_curves(
    run: Path, called: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    measure(run, 1, success=0.25, mu=0.5)
    assert rla(["compute-rewards", "--run", "r", "--set", "guards.stop=[useless-judge]"]) == 2
    assert "guards.stop: mu is 0.50" in capsys.readouterr().err
    assert shown(run)["judge/mu"] == [(1, 0.5)]


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_service_that_does_not_answer_stops_nothing(
    name: str, run: Path, called: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tracking = pytest.importorskip("accelerate.tracking")

    class CommError(Exception):
        """As a service's own: of no class that others share."""

    def away(*_: object, **__: object) -> None:
        raise CommError("no route\n\x1b[31mto host")

    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, name, away)
    monkeypatch.setattr("rla_study.tracking.refuse_missing", lambda name: None)
    assert rla(["compute-rewards", "--run", "r", "--set", f"tracking.trackers=[{name}]"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert f"no curves: {name} took no points (CommError: no route [31mto host)" in said
    assert not (run / "tracking/iterations.json").exists()  # the next stage sends them
