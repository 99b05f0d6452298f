"""Metrics and tables of packages, as the core asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from rla.config import Config
from rla.errors import UserError
from rla.metrics import custom
from rla.metrics.custom import Figure, add_metrics, joined_figures, told_figures
from rla.report.collect import RunSummary
from rla.report.curves import panels, report_figures
from rla.report.render import Section, page_of_run
from rla.report.tables import Table, tables_of_run
from rla.store.records import Task
from tests.unit.builders import configured, task


class Jumps:
    """All that a package may bring."""

    figures = (Figure(key="jumps", panel="Jumps", tag="body/jumps"), Figure(key="high", panel="High jumps", share=True))

    def measure(self, trajectories: Path, config: Config, *, held_out: Sequence[Task]) -> dict[str, Any]:
        return {"jumps": len(held_out), "place": trajectories.name, "seed": config.seed}

    def joined(self, found: Sequence[Mapping[str, float]]) -> dict[str, float]:
        return {"highest": max(figures["highest"] for figures in found)}

    def told(self, figures: Mapping[str, float]) -> str:
        return f"{figures['jumps']:.0f} jumps" if "jumps" in figures else ""

    def tables(self, summary: RunSummary) -> list[Table]:
        rows = tuple((str(row["iteration"]), str(row["jumps"])) for row in summary.iterations)
        return [Table(title="Jumps", columns=("iteration", "jumps"), rows=rows)]

    def sections(self, summary: RunSummary) -> list[Section]:
        return [Section(name="jumps", title="Highest", body=[f"<p>of {summary.run.name}</p>"])]


class Silent:
    """Nothing that the core asks for."""


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "registered_objects", lambda: {"jumps": Jumps(), "silent": Silent()})


def test_what_a_package_measures_is_added_to_the_metrics() -> None:
    metrics = {"success": 0.5}
    add_metrics(metrics, Path("r/1/trajectories"), configured("seed=7"), held_out=[task("a"), task("b")])
    assert metrics == {"success": 0.5, "jumps": 2, "place": "trajectories", "seed": 7}


def test_a_key_that_is_there_already_is_refused() -> None:
    with pytest.raises(UserError, match=r"rla\.tables: Jumps measures place, which metrics\.json"):
        add_metrics({"place": 1}, Path("r"), configured())


def test_figures_of_services_add_up_unless_a_package_joins_them() -> None:
    found = joined_figures([{"jumps": 2, "highest": 3.0}, {"jumps": 1, "highest": 5.0}])
    assert found == {"jumps": 3, "highest": 5.0} and joined_figures([]) == {}
    assert told_figures(found) == "3 jumps" and told_figures({"other": 1.0}) == ""


def test_a_figure_has_a_curve_for_iterations_and_evaluations_and_a_series(tmp_path: Path) -> None:
    rows = ({"iteration": 1, "jumps": 4, "high": 0.25},)
    evaluations = ({"iteration": 0, "success": 0.5, "jumps": 3},)
    summary = RunSummary(run=tmp_path, iterations=rows, evaluations=evaluations, seconds={}, gain=None)
    drawn = {panel.name: panel for panel in panels(summary)}
    assert [(line.label, line.y) for line in drawn["jumps"].lines] == [("held out", (3,)), ("training tasks", (4,))]
    assert (drawn["high"].unit, drawn["high"].lines[0].y) == ("%", (25.0,))
    assert {"jumps": 4, "high": 0.25}.items() <= report_figures(summary)["iterations"][0].items()


def test_tables_of_packages_stand_in_the_report(tmp_path: Path) -> None:
    summary = RunSummary(
        run=tmp_path, iterations=({"iteration": 1, "jumps": 4},), evaluations=(), seconds={}, gain=None
    )
    (table,) = [table for table in tables_of_run(summary) if table.title == "Jumps"]
    assert table.rows == (("1", "4"),)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("nowhere.at_all:Tables", "cannot be imported .*No module named 'nowhere'"),
        ("rla.store.layout:artifact", "cannot be made .*missing"),
    ],
)
def test_a_class_that_is_not_to_be_had_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, target: str, why: str
) -> None:
    monkeypatch.undo()
    entry = EntryPoint(name="broken", value=target, group=custom.GROUP)
    monkeypatch.setattr(custom, "registered", lambda group: {"broken": entry})
    with pytest.raises(UserError, match=f"rla.tables: broken is {target}, which {why}"):
        custom.registered_objects.__wrapped__()


def test_a_package_has_sections_on_the_page_of_a_run(tmp_path: Path) -> None:
    summary = RunSummary(run=tmp_path / "mine", iterations=(), evaluations=(), seconds={}, gain=None)
    page = page_of_run(summary, [])
    assert '<section id="jumps"><h2>Highest</h2>\n<p>of mine</p>' in page
