"""Numbers and drawings of a run whose stage calls are few enough to add up by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rla_study.timeline.drawing import (
    axis_marks,
    axis_text,
    iteration_text,
    lanes,
    timeline_lines,
    timeline_svg,
    told_timeline,
)
from rla_study.timeline.timeline import Timeline, timeline_json, timeline_of, union_seconds

from rla.cli.app import run
from rla.errors import UserError
from tests.unit.report.test_report import write


def call(second: float, seconds: float, *gpus: str, host: str = "one", **more: Any) -> dict[str, Any]:
    """A call that starts so many seconds after midnight."""
    started = f"2026-01-01T00:{int(second) // 60:02d}:{second % 60:06.3f}+00:00"
    devices = [{"gpu": name, "name": "H200"} for name in gpus]
    made = {"seconds": seconds, "made": True, "origin": None}
    return {"started": started, **made, "host": host, "devices": devices, **more}


def recorded(folder: Path, name: str, iteration: int, *calls: dict[str, Any]) -> None:
    stage = re.sub(r"-slice.*", "", name)
    write(folder / f"timings/{iteration}-{name}.json", {"stage": stage, "iteration": iteration, "calls": list(calls)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """100 seconds: a rollout on two GPUs in 0-40, judging on a third in 0-50, nothing in 50-60,
    both trainings at once in 60-100 and 60-80.
    """
    place = tmp_path / "run"
    recorded(place, "rollout", 1, call(0, 40, "0", "1"))
    recorded(place, "score-steps", 1, call(0, 50, "2"))
    recorded(place, "train-policy", 1, call(60, 40, "0", "1"))
    recorded(place, "train-rm", 1, call(60, 20, "1", "2"))
    recorded(place, "report", 1, call(500, 3))
    return place


def found_in(folder: Path) -> Timeline:
    found = timeline_of(folder)
    assert found is not None
    return found


def test_a_union_counts_what_overlaps_once() -> None:
    assert union_seconds([(0, 40), (30, 50), (60, 70), (62, 65)]) == 50 + 10


def test_idle_shares_and_hours_of_three_gpus(folder: Path) -> None:
    numbers = timeline_json(found_in(folder), price=3.6)
    assert (numbers["wall_seconds"], numbers["busy_seconds"], numbers["idle_share"]) == (100, 90, 0.1)
    assert [(one["device"], one["busy_seconds"], one["idle_share"]) for one in numbers["devices"]] == [
        ("GPU 0", 80, 0.2),
        ("GPU 1", 80, 0.2),  # two trainings at once are busy once
        ("GPU 2", 70, 0.3),
    ]
    assert numbers["gpu_hours_busy"] == round(230 / 3600, 4) and numbers["gpu_hours_wall"] == round(300 / 3600, 4)
    assert numbers["cost_wall"] == 0.3 and numbers["cost_busy"] == 0.23
    assert "cost_wall" not in timeline_json(found_in(folder))


def test_what_is_told_of_it(folder: Path) -> None:
    assert told_timeline(found_in(folder), price=36) == [
        "wall time 100.0 s; in 10.0% of it no stage ran",
        "idle by device: GPU 0 20.0%, GPU 1 20.0%, GPU 2 30.0%",
        "0.06 GPU hours busy of 0.08, on 3 GPUs (H200)",
        "cost 3.00 for the wall time, 2.30 for the busy time",
    ]


def test_a_line_for_each_device_and_one_more_where_stages_overlap(folder: Path) -> None:
    lines = [line.plain for line in timeline_lines(found_in(folder), width=26)]
    assert lines == [
        "      #1",
        "GPU 0 rrrrrrrr....PPPPPPPP",  # twenty columns of five seconds
        "GPU 1 rrrrrrrr....PPPPPPPP",
        "GPU 1 ............MMMM....",
        "GPU 2 ssssssssss..MMMM....",
        "      0  15 30 45 60 75 90 s",
        "r rollout   s score-steps   P train-policy   M train-rm   . idle",
    ]


def test_slices_on_cpus_have_lines_of_their_own_and_the_call_that_started_them_has_none(tmp_path: Path) -> None:
    recorded(tmp_path, "rollout", 1, call(0, 60))
    recorded(tmp_path, "rollout-slice-1-of-2", 1, call(2, 40, slice="1/2"))
    recorded(tmp_path, "rollout-slice-2-of-2", 1, call(2, 58, slice="2/2", host="two"))
    found = found_in(tmp_path)
    assert [(lane.label, len(lane.spans)) for lane in lanes(found)] == [("one CPU 1/2", 1), ("two CPU 2/2", 1)]
    assert found.wall == 58 and found.gpus == []


def test_calls_that_made_nothing_or_made_what_was_replaced_are_left_out(tmp_path: Path) -> None:
    recorded(
        tmp_path,
        "rollout",
        1,
        call(0, 30, origin="old"),
        call(40, 30, origin="new"),
        call(3000, 1, made=False, origin="new"),
    )
    assert [(one.end - one.start) for one in found_in(tmp_path).spans] == [30]


def test_hostile_records_draw_no_more_than_text(tmp_path: Path) -> None:
    evil = "<script>$x$\x1b[2J"
    recorded(tmp_path, "rollout", 1, call(0, 9, evil, host=evil), call(10, float("nan")), call(20, -5))
    write(tmp_path / "timings/1-x.json", {"stage": evil, "iteration": 1, "calls": [call(0, 5)]})
    found = found_in(tmp_path)
    assert "<script>" not in timeline_svg(found) and "\x1b" not in "".join(
        line.plain for line in timeline_lines(found, width=80)
    )
    assert found.wall == 9


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    recorded(tmp_path, "rollout", 1, call(0, 9) | {"devices": ["a"]})
    with pytest.raises(UserError, match=r"1-rollout\.json: not the times of a stage; remove it"):
        timeline_of(tmp_path)


def test_iterations_are_named_where_they_begin_if_there_is_room(tmp_path: Path) -> None:
    for iteration, second in ((1, 10), (2, 30), (3, 31), (10, 99)):
        recorded(tmp_path, "rollout", iteration, call(second, 1))
    recorded(tmp_path, "warm-start", 1, call(0, 10))
    assert iteration_text(found_in(tmp_path), 50) == "     #1        #2"  # columns of two seconds


def test_marks_of_the_axis_are_few_and_round() -> None:
    assert axis_marks(100) == (15, 1.0, "s") and axis_marks(3600) == (10, 60.0, "min")
    assert axis_marks(7 * 3600) == (1, 3600.0, "h") and axis_marks(400 * 86400) == (50, 86400.0, "d")
    assert axis_text(3600, 24) == "0   10  20  30  40  50 min" and axis_text(0, 20) == "0 s"
    assert axis_text(100, 10) == "0  30 60 s"


def test_the_command_prints_lines_numbers_and_clear_errors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["timeline", str(folder), "--price", "36"]) == 0
    assert "cost 3.00 for the wall time" in capsys.readouterr().out
    assert run(["timeline", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gpus"] == 3
    assert run(["timeline", str(folder.parent / "none")]) == 2
    assert "none: no such run; " in capsys.readouterr().err
    recorded(folder.parent / "cpu", "rollout", 1, call(0, 9))
    assert run(["timeline", str(folder.parent / "cpu"), "--price", "1"]) == 2
    assert "no call of this run has used one" in capsys.readouterr().err


def test_the_figure_is_the_same_when_it_is_written_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = []
    for _ in range(2):
        assert run(["timeline", str(folder), "--svg", str(folder / "when.svg")]) == 0
        figures.append((folder / "when.svg").read_text())
    assert figures[0] == figures[1] and "GPU 2</text>" in figures[0]
    assert "in 10.0% of it no stage ran" in capsys.readouterr().out
