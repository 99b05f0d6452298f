"""Warnings are printed after their stage, and end it where the run says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.cli.calls import earlier_calls, heed, warnings_of
from rla.cli.progress import make_progress
from rla.errors import UserError
from rla.pipeline import StageContext
from rla.store.atomic import write_json
from stages import STAGES
from tests.unit.builders import configured


def after(stage: str, run: Path, **changes: object) -> StageContext:
    spec = next(spec for spec in STAGES if spec.name == stage)
    fields: dict[str, object] = {"spec": spec, "stages": STAGES, "config": configured(), "run": run, "iteration": 2}
    return StageContext(**(fields | {"progress": make_progress()} | changes))  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for iteration, mu, plus in ((1, 1.2, 0.5), (2, 0.9, 0.05)):
        (tmp_path / str(iteration)).mkdir()
        write_json(tmp_path / f"{iteration}/metrics.json", {"iteration": iteration, "mu": mu, "p_plus": plus})
    return tmp_path


def test_a_stage_speaks_of_its_own_figures(run: Path) -> None:
    found = warnings_of(after("compute-rewards", run))
    assert [warning.guard for warning in found] == ["one-sided-judge", "useless-judge"]
    assert warnings_of(after("compute-rewards", run, iteration=1)) == []
    assert warnings_of(after("train-policy", run)) == [] == warnings_of(after("init-model", run))
    assert warnings_of(after("compute-rewards", run, paths={"metrics": run / "elsewhere.json"})) == []


@pytest.mark.parametrize(
    ("text", "calls"), [('{"calls": [1]}', [1]), ("{}", []), ("[]", []), ("{", []), ('{"calls": 3}', [])]
)
def test_damaged_times_begin_anew(tmp_path: Path, text: str, calls: list[int]) -> None:
    (tmp_path / "times.json").write_text(text)
    assert earlier_calls(tmp_path / "times.json") == calls
    assert earlier_calls(tmp_path / "none.json") == []


def test_a_warning_is_a_line_and_stops_where_it_is_named(run: Path) -> None:
    said: list[str] = []
    found = warnings_of(after("compute-rewards", run))
    heed(found, configured("guards.stop=[no-action]"), echo=said.append)
    assert len(said) == 2 and said[1].startswith("warning (useless-judge): mu is 0.90")
    with pytest.raises(UserError, match=r"guards\.stop: mu is 0\.90: .*; lower credit\.step_weight"):
        heed(found, configured("guards.stop=[useless-judge]"), echo=said.append)
