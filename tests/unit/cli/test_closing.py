"""The line at the end of a stage call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rla.cli.calls import closing_lines, readable, stamps_of
from rla.cli.progress import make_progress
from rla.pipeline import StageContext
from rla.processes import BRIEF, LOOP
from rla.store.layout import artifact
from stages import STAGES
from tests.unit.builders import configured
from tests.unit.pipeline.run_records import finished_run, record


class Account:
    """A call of a stage, whose closing lines are asked for when its outputs are made."""

    def __init__(self, stage: str, run: Path, iteration: int = 2, **paths: Path) -> None:
        spec = next(spec for spec in STAGES if spec.name == stage)
        self.ctx = StageContext(
            spec=spec,
            stages=STAGES,
            config=configured(),
            run=run,
            iteration=iteration,
            progress=make_progress(),
            paths=paths,
        )
        self.before = stamps_of(self.ctx)

    def lines(self, summary: Mapping[str, Any]) -> list[str]:
        return closing_lines(self.ctx, summary, self.before, seconds=0.04)

    def line(self) -> str:
        (line,) = self.lines({})
        return line


def untimed(line: str) -> str:
    return re.sub(r"in [\d.]+ s$", "in 0 s", line)


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOOP, raising=False)


def test_a_temporary_file_that_another_slice_renames_meanwhile_is_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished_run(tmp_path, 1)
    listed, gone = Path.iterdir, artifact(run, "trajectories", 1) / ".part-00000.parquet.tmp"
    monkeypatch.setattr(Path, "iterdir", lambda folder: [*listed(folder), *([gone] if folder == gone.parent else [])])
    assert Account("rollout", run, iteration=1).before


def test_it_names_what_was_read_and_made_as_it_lies_in_the_run(tmp_path: Path) -> None:
    run = finished_run(tmp_path, 1)
    for name in ("trajectories", "scores", "policy_rewards"):
        record(run, name, 2)
    began = Account("train-policy", run)
    record(run, "policy", 2)
    expected = "train-policy read 1/policy, 2/trajectories, 2/rewards/policy; made 2/policy in 0 s"
    assert untimed(began.line()) == expected


def test_what_was_complete_is_kept(tmp_path: Path) -> None:
    run = finished_run(tmp_path, 2)
    line = untimed(Account("train-policy", run).line())
    assert line.endswith("2/rewards/policy; kept 2/policy in 0 s") and "made" not in line


def test_another_folder_is_named_in_full(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run", 1)
    began = Account("rollout", run, 2, out=tmp_path / "elsewhere")
    artifact(run, "trajectories", 1).rename(tmp_path / "elsewhere")
    assert f"made {tmp_path}/elsewhere in" in began.line()


def test_a_loop_stands_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished_run(tmp_path / "runs/a", 2)
    monkeypatch.setenv(LOOP, "12")
    assert Account("train-policy", run).line().startswith("iteration 2 of 12: train-policy read ")
    assert Account("warm-start", run).line().startswith("warm-start ")


def test_the_text_of_a_report_stands_last(tmp_path: Path) -> None:
    won, closing, text = Account("report", tmp_path).lines({"text": "a\nb\n", "won": 3})
    assert (won, text) == ("won: 3", "a\nb") and closing.startswith("report ")


def test_a_brief_loop_has_one_line_of_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished_run(tmp_path, 1)
    began = Account("train-policy", run)
    record(run, "policy", 2)
    summary = {"policy": "x", "updates": 4, "loss": 0.03889, "success": 0.33594}
    assert len(began.lines(summary)) == 5
    monkeypatch.setenv(BRIEF, "1")
    (line,) = began.lines(summary)
    assert re.sub(r"in [\d.]+ s", "in 0 s", line) == "train-policy made 2/policy in 0 s; success 0.3359, updates 4"


def test_summary_values_are_one_line() -> None:
    assert readable({"won": 3, "rate": 1 / 3}) == "won 3, rate 0.3333"
