"""The tables of episodes that trackers get: which rows there are, and that no text in them has an effect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rla_study.episode_tables import COLUMNS, EPISODES, SHOWN, episode_table, plain_cell
from rla_study.tables import StudyTables
from rla_study.tracking import run_points, track_run

from rla.config import Config
from rla.metrics import custom
from rla.store.atomic import write_json
from rla.store.shards import Origin, write_shard
from tests.unit.builders import configured, score, step, trajectory

HOSTILE = "<script>alert(1)</script> ![x](https://evil.example/p.png) [y][z] &lt; \x1b[31m\u202e end"
ORIGIN = Origin(config="c", inputs={}, seed=0)


class Table:
    """As `wandb.Table` and `trackio.Table`: columns and rows of equal length."""

    def __init__(self, *, columns: list[str], data: list[list[Any]]) -> None:
        assert all(len(row) == len(columns) for row in data)
        self.rows = [dict(zip(columns, row, strict=True)) for row in data]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a tracker with a table of its own."""
    module = ModuleType("service")
    module.Table = Table  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "service", module)
    return "service"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """Makes a run whose iteration 1 has these outcomes, and judged first steps."""

    def made(*outcomes: int, **changes: Any) -> Path:
        rows = [trajectory(f"e{n}", outcome=outcome, **changes).row() for n, outcome in enumerate(outcomes)]
        write_shard(tmp_path / "r/1/trajectories", "trajectories", rows, ORIGIN)
        votes = [score(f"e{n}", votes=(1, 1, None, -1)).row() for n in range(len(outcomes))]
        write_shard(tmp_path / "r/1/scores", "scores", votes, ORIGIN)
        write_json(tmp_path / "r/1/metrics.json", {"iteration": 1, "success": 0.5})
        return tmp_path / "r"

    return made


def rows_of(run: Path, service: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = episode_table(run, configured(), 1, service)["episodes"].rows
    return rows


def test_a_row_has_the_task_the_outcome_the_votes_and_the_texts(run: Callable[..., Path], service: str) -> None:
    steps = [step(observation="First."), step(observation="Second.", reply="I look.")]
    (row,) = rows_of(run(1, steps=steps, reward=1.0), service)
    assert row == {
        "iteration": 1,
        "task": "t1",
        "kind": "pick_and_place_simple",
        "instruction": "put a mug in desk.",
        "outcome": "won",
        "steps": 2,
        "reward": 1.0,
        "votes": "2 of 3 good",
        "before": "First.",
        "after": "I look.\nYou won.",
    }
    assert list(row) == COLUMNS


@pytest.mark.parametrize(
    ("won", "lost", "rows"), [(20, 20, (4, 4)), (20, 1, (7, 1)), (1, 20, (1, 7)), (20, 0, (8, 0)), (2, 3, (2, 3))]
)
def test_the_sample_is_bounded_and_has_both_outcomes(
    run: Callable[..., Path], service: str, won: int, lost: int, rows: tuple[int, int]
) -> None:
    found = [row["outcome"] for row in rows_of(run(*[1] * won, *[-1] * lost, stop_reason="ended"), service)]
    assert (found.count("won"), found.count("lost (ended)")) == rows and len(found) <= EPISODES


def test_texts_are_short_and_have_no_effect() -> None:
    text = plain_cell(HOSTILE)
    assert "<script" not in text and "](" not in text and "][" not in text and "&lt" not in text
    assert "https:" not in text and "\x1b" not in text and "\u202e" not in text
    assert text.startswith("< script>alert(1)< /script>") and text.endswith("end")
    long = plain_cell("<" * 10_000)
    assert len(long) <= 2 * SHOWN + 10 and "<<" not in long
    assert plain_cell("a < b\n[1, 2]") == "a < b\n[1, 2]"


def test_episodes_that_cannot_be_read_take_no_curve_along(
    run: Callable[..., Path], service: str, tmp_path: Path
) -> None:
    assert episode_table(tmp_path / "nothing", configured(), 1, service) == {}
    folder = run(1)
    for part in (folder / "1/trajectories").glob("*.parquet"):
        part.write_bytes(b"damaged")
    assert episode_table(folder, configured(), 1, service) == {}


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(custom, "registered_objects", lambda: {"study": StudyTables()})
    return configured()


def hostile_steps() -> list[Any]:
    return [step(observation=HOSTILE, reply=HOSTILE)]


def test_wandb_keeps_the_table_beside_the_curves(
    run: Callable[..., Path], registered: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = run(1, -1, 1, steps=hostile_steps())
    track_run(folder, run_points(folder, registered), {"seed": 0}, ["wandb"])
    (file,) = (folder / "wandb").glob("offline-run-*/files/media/table/episodes_*.table.json")
    kept = json.loads(file.read_text())
    assert kept["columns"] == COLUMNS and len(kept["data"]) == 3
    assert "<script" not in file.read_text()


READ = """
import json, sys
from trackio.sqlite_storage import SQLiteStorage
(name,) = SQLiteStorage.get_runs("rla")
print(json.dumps(SQLiteStorage.get_logs("rla", name)))
"""


def test_trackio_keeps_the_table_beside_the_curves(run: Callable[..., Path], tmp_path: Path) -> None:
    """In processes of their own, because trackio reads its folder from the environment once."""
    pytest.importorskip("trackio", reason="the extra trackio is not installed")
    folder = run(1, -1, steps=hostile_steps())
    places = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio"), "PYTHONPATH": os.pathsep.join(sys.path)}
    send = f"from study_tests.test_episode_tables import send; send({str(folder)!r})"
    subprocess.run([sys.executable, "-c", send], env=places, check=True, timeout=120)
    done = subprocess.run([sys.executable, "-c", READ], env=places, check=True, timeout=120, capture_output=True)
    (values,) = [row for row in json.loads(done.stdout) if "episodes" in row]
    assert values["success/training"] == 0.5
    assert [row["task"] for row in values["episodes"]["_value"]] == ["t1", "t1"]
    assert "<script" not in json.dumps(values)


def send(run: str) -> None:
    """Show the curves of a run in trackio."""
    custom.registered_objects = lambda: {"study": StudyTables()}  # type: ignore[assignment]
    track_run(Path(run), run_points(Path(run), configured()), {"seed": 0}, ["trackio"])
