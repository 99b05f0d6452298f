"""The page of a run: headline, curves as SVG."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from rla.metrics.intervals import Interval
from rla.report.collect import HeldOut, Row, RunSummary
from rla.report.curves import Line, Panel, panels, svg
from rla.report.render import curves_section
from rla.report.tables import headline
from rla.store.shards import Origin, write_shard
from tests.unit.builders import trajectory


def summary(*rows: Row, **changes: Any) -> RunSummary:
    evaluations = ({"iteration": 0, "success": 0.25}, {"iteration": 4, "success": 0.5})
    fields: dict[str, Any] = {
        "run": Path("runs/x"),
        "iterations": rows,
        "evaluations": evaluations,
        "seconds": {(1, "rollout"): 30.0, (2, "rollout"): 60.0, (0, "warm-start"): 100.0},
        "gain": Interval(estimate=0.25, low=0.1, high=0.4),
    }
    return RunSummary(**(fields | changes))


ROWS = (
    {"iteration": 1, "success": 0.2, "success_low": 0.1, "success_high": 0.3, "mu": 1.12, "accepted_total": 0},
    {"iteration": 2, "success": 0.4, "success_low": 0.3, "success_high": 0.5, "mu": 1.25, "accepted_total": 3},
)


def test_the_headline_says_what_was_won_and_at_what_cost() -> None:
    assert headline(summary(*ROWS)) == [
        "held-out success 25.0% to 50.0% in 4 iterations: +25.0 points, 95% interval +10.0 to +40.0",
        "mu 1.12 to 1.25; 3 changed tasks accepted; 3 min 10 s of stages",
    ]
    one = HeldOut(split="unseen", evaluations=({"iteration": 0, "success": 0.1},), gain=None)
    lines = headline(
        summary(further=(one,), evaluations=({"iteration": 0, "success": 0.3, "split": "seen"},), gain=None)
    )
    assert lines[:2] == [
        "held-out success on seen 30.0% at iteration 0",
        "held-out success on unseen 10.0% at iteration 0",
    ]
    assert headline(summary(evaluations=(), gain=None, seconds={})) == []


def test_a_model_that_was_evaluated_before_its_warm_start_is_compared_with_that(tmp_path: Path) -> None:
    folder = tmp_path / "eval/untrained"
    for place, outcomes in ((folder, (-1, -1)), (tmp_path / "eval/4", (1, -1))):
        rows = [trajectory(f"e{n}", task_id=f"t{n}", outcome=outcome).row() for n, outcome in enumerate(outcomes)]
        write_shard(place / "trajectories", "trajectories", rows, Origin(config="c", inputs={}, seed=0))
    assert not headline(summary(run=tmp_path))[0].startswith("held-out success 0.0% untrained")
    (folder / "metrics.json").write_text(json.dumps({"success": 0.0}))
    (first, *_) = headline(summary(run=tmp_path))
    assert first.startswith("held-out success 0.0% untrained to 50.0% at iteration 4: +50.0 points, 95% interval ")
    (tmp_path / "eval/4/trajectories/_manifest.parquet").unlink()
    assert "untrained" not in headline(summary(run=tmp_path))[0]


def test_one_iteration_is_one() -> None:
    ends = ({"iteration": 0, "success": 0.25}, {"iteration": 1, "success": 0.5})
    assert headline(summary(evaluations=ends))[0].startswith("held-out success 25.0% to 50.0% in 1 iteration: +25.0")


def test_panels_have_the_points_that_are_known() -> None:
    found = {panel.title: panel for panel in panels(summary(*ROWS))}
    assert set(found) == {"Success", "mu: the reward model helps above 1", "Accepted tasks so far"}
    held_out, training = found["Success"].lines
    assert (held_out.label, held_out.x, held_out.y, held_out.low) == ("held out", (0, 4), (25.0, 50.0), ())
    assert training.y == (20.0, 40.0) and training.low == (10.0, 30.0)
    assert panels(summary(evaluations=(), gain=None, seconds={})) == []


@pytest.mark.parametrize("values", [(1.2e-4, 2.9e-4), (-1.2e-4, 2.9e-4), (99.9, 100.0), (50.0, 50.4), (1.0, 2.4e6)])
@pytest.mark.parametrize("unit", ["", "%"])
def test_margins_hold_the_labels_of_a_panel(
    values: tuple[float, ...], unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = list[Figure]()

    def saved(figure: Figure, stream: io.StringIO, **_: object) -> None:
        drawn.append(figure)
        inside, ink = figure.bbox_inches, figure.get_tightbbox()
        assert ink is not None and ink.x0 > 0 and ink.y0 > 0 and ink.x1 < inside.x1 and ink.y1 < inside.y1
        stream.write("<svg/>")

    monkeypatch.setattr(Figure, "savefig", saved)
    svg.__wrapped__(Panel(name="kl", title="KL", unit=unit, lines=(Line(label="policy", x=(1, 2), y=values),)))
    assert len(drawn) == 1


def test_a_curve_is_an_svg_element_that_is_the_same_each_time() -> None:
    (panel, *_) = panels(summary(*ROWS))
    text = svg(panel)
    assert ElementTree.fromstring(text).tag.endswith("svg") and "iteration" in text
    assert svg(panel) == text
    assert "<figcaption>Success</figcaption><svg" in "".join(curves_section([panel]).body)
