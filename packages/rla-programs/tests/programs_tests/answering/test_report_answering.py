"""Tables and curves about k answers to a question and about tools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rla_programs.answering.at_k import Answered, figures_at_k
from rla_programs.answering.tables import answer_tables, tool_tables
from rla_programs.execution.surroundings import surroundings_table
from rla_study.tracking import run_points

from rla.report.collect import HeldOut, RunSummary, collect
from rla.report.curves import panels
from rla.store.atomic import write_json

TOOLS = {
    **{"tool_calls": 2.25, "tool_calls_ran": 0.5, "tool_success": 0.75, "tool_no_call": 0.125},
    **{"tool_round_tokens": 96.0, "tool_truncated": 0.25, "tool_sampled_entropy": 0.75},
}


def figures(**changes: Any) -> dict[str, Any]:
    """Of source a one of four right in both questions, of b all; A, the right answer, has the most votes."""
    some = Answered(source="a", right=[True, False, False, False], votes=[*"AABC"])
    questions = {"1": some, "2": some, "3": Answered(source="b", right=[True] * 4, votes=[*"AAAA"])}
    return figures_at_k(questions, **changes)


def summary(*evaluations: dict[str, Any], iterations: tuple[dict[str, Any], ...] = ()) -> RunSummary:
    return RunSummary(run=Path("r"), iterations=iterations, evaluations=evaluations, seconds={}, gain=None)


def test_all_answers_have_intervals_and_fewer_have_none() -> None:
    """avg@4 is 1/2, maj@4 of a the half of A that is right: (1/2 + 1/2 + 1) / 3; pass@2 of a 1 - 3/6."""
    table, sources = answer_tables(summary({"iteration": 0, "success": 0.5, "at_k": figures()}))
    names = ("avg@4", "95% interval", "maj@4", "95% interval", "pass@4", "95% interval", "pass@2")
    assert table.columns == ("iteration", *names)
    assert [table.rows[0][place] for place in (0, 1, 3, 5, 7)] == ["0", "50.0%", "66.7%", "100.0%", "66.7%"]
    assert sources.rows == (
        ("a", "2", "25.0%", "50.0%", "100.0%"),
        ("b", "1", "100.0%", "100.0%", "100.0%"),
        ("mean of sources", "2", "62.5%", "75.0%", "100.0%"),
    )


def test_the_published_estimator_is_shown_by_its_name() -> None:
    table, _ = answer_tables(summary({"iteration": 0, "success": 0.5, "at_k": figures(estimator="published")}))
    assert "best@4" in table.columns and "best@2" in table.columns and "pass@4" not in table.columns


def test_evaluations_without_such_figures_have_no_rows() -> None:
    """One of an earlier version, and one with one answer to a question."""
    one = figures_at_k({"1": Answered(source="a", right=[True])})
    made = answer_tables(summary({"iteration": 0, "success": 0.5}, {"iteration": 1, "success": 1.0, "at_k": one}))
    assert [table.rows for table in made] == [(), ()]


def test_tools_of_training_and_of_the_sources_of_the_last_evaluation() -> None:
    evaluated = {"iteration": 3, "success": 0.5, **TOOLS, "tool_by_kind": {"code": TOOLS, "math": TOOLS}}
    trained, held_out, _ = tool_tables(summary(evaluated, iterations=({"iteration": 1, **TOOLS}, {"iteration": 2})))
    cells = ("2.25", "50.0%", "75.0%", "12.5%", "96.00", "25.0%", "0.75")
    assert trained.rows == (("1", *cells),)
    assert held_out.rows == (("3", *cells), ("code", *cells), ("math", *cells))


def test_how_calls_ran_is_shown_of_every_stage_that_played() -> None:
    figures = {
        (1, "rollout"): {"calls": 3, "calls_ok": 2, "calls_error": 1, "run_seconds_mean": 0.25},
        (0, "evaluate"): {"calls": 1, "calls_timeout": 1, "call_seconds_p99": 4.0},
        (1, "train-policy"): {"calls": 9},
    }
    table = tool_tables(replace(summary(), figures=figures))[-1]
    assert table.columns[:5] == ("iteration", "calls", "error", "ok", "timeout")
    assert table.rows == (
        ("1", "3", "1", "2", "0", "0.250", "-", "-", "-"),
        ("evaluation 0", "1", "0", "0", "1", "-", "-", "-", "4.000"),
    )


def test_machines_and_pages_have_a_table_of_their_own() -> None:
    figures = {
        (1, "rollout"): {"pages": 12.0, "pages_lost": 2.0, "pages_given_up": 1.0},
        (2, "rollout"): {"machines": 3.0, "machine_start_s": 5.4},
    }
    found = replace(summary(), figures=figures)
    assert tool_tables(found)[-1].rows == ()
    table = surroundings_table(found)
    assert table.columns[1:] == (
        "machines",
        "seconds of their starts",
        "pages",
        "pages lost",
        "episodes ended for that",
    )
    assert table.rows == (("1", "-", "-", "12", "2", "1"), ("2", "3", "5", "-", "-", "-"))


def test_figures_of_slices_and_of_calls_are_read_from_the_records_of_times(tmp_path: Path) -> None:
    call = {"started": "2026-01-02T03:04:05+00:00", "seconds": 1.0, "made": True, "origin": None}
    call |= {"host": "one", "devices": [], "figures": {"calls": 2, "calls_ok": 2}}
    for part in ("", "-slice-0-of-2"):
        write_json(
            tmp_path / f"timings/1-rollout{part}.json", {"stage": "rollout", "iteration": 1, "calls": [call] * 2}
        )
    write_json(
        tmp_path / "timings/1-train-rm.json", {"stage": "train-rm", "iteration": 1, "calls": [call | {"figures": {}}]}
    )
    assert collect(tmp_path).figures == {(1, "rollout"): {"calls": 8, "calls_ok": 8}}


def test_tools_have_curves() -> None:
    drawn = {panel.name: panel for panel in panels(summary(iterations=({"iteration": 1, **TOOLS},)))}
    assert drawn["tool-calls"].lines[0].y == (2.25,) and drawn["tool-calls-ran"].lines[0].y == (50.0,)
    assert drawn["tool-success"].lines[0].y == (75.0,)
    assert drawn["tool-round-tokens"].lines[0].label == "training tasks"


def test_trackers_get_the_figures_of_all_answers_and_of_tools(tmp_path: Path) -> None:
    place = tmp_path / "eval/0/metrics.json"
    place.parent.mkdir(parents=True)
    write_json(place, {"split": "test", "success": 0.5, "at_k": figures(), **TOOLS})
    (point,) = run_points(tmp_path)
    assert point.values["avg@4/test"] == 0.5 and point.values["pass@4/test"] == 1.0
    assert point.values["tools/calls of an episode on test"] == 2.25


def test_further_splits_have_tables_of_their_own() -> None:
    row = {"iteration": 0, "split": "test", "success": 0.5, "at_k": figures()}
    further = (HeldOut(split="hard", evaluations=(row,), gain=None),)
    made = answer_tables(
        RunSummary(run=Path("r"), iterations=(), evaluations=(row,), seconds={}, gain=None, further=further)
    )
    assert [table.title for table in made if table.rows] == [
        "Answers to held-out questions, test",
        "Answers by source, test",
        "Answers to held-out questions, hard",
        "Answers by source, hard",
    ]
