"""The report of a run folder: worked examples of cells, and of runs that lack most of what a run has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rla.cli.app import run
from rla.errors import UserError
from rla.report.collect import RunSummary, collect
from rla.report.render import as_text, fitting, report_page, tables_section
from rla.report.tables import Table, tables_of_run
from rla.store.manifest import MANIFEST
from rla.store.shards import Origin, write_shard
from tests.unit.builders import trajectory


def tables(summary: RunSummary) -> dict[str, Table]:
    """Title -> table, of those with rows."""
    return {table.title: table for table in tables_of_run(summary)}


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """Two iterations, the second without training yet; two evaluations of two tasks, two episodes each."""
    folder = tmp_path / "run"
    measured = {"success": 0.5, "success_low": 0.412, "success_high": 0.588, "mean_steps": 12.34, "mu": 1.257}
    write(folder / "1/metrics.json", measured | {"rm_outcome_accuracy": 0.75, "accepted": 2, "rejected": 1})
    write(folder / "1/policy/metrics.json", {"approx_kl": 0.01234, "entropy": 0.5})
    write(folder / "1/candidates" / MANIFEST, {"counts": {"proposed": 4, "valid": 3}})
    write(folder / "2/metrics.json", {"success": 0.625, "mu": None})
    write(folder / "timings/1-rollout.json", timing(1, "rollout", 3.0, 1.25))
    write(folder / "timings/1-train-rm.json", timing(1, "train-rm", 2.0))
    write(folder / "timings/1-warm-start.json", timing(1, "warm-start", 60.0))
    for number, outcomes in ((0, {"a": (-1, -1), "b": (-1, 1)}), (2, {"a": (1, -1), "b": (1, 1)})):
        won = sum(outcome == 1 for pair in outcomes.values() for outcome in pair)
        kinds = {"pick_and_place_simple": {"episodes": 4, "success": won / 4}}
        write(folder / f"eval/{number}/metrics.json", {"episodes": 4, "success": won / 4, "by_kind": kinds})
        rows = [
            trajectory(f"{task}{index}", task_id=task, outcome=outcome).row()
            for task, pair in outcomes.items()
            for index, outcome in enumerate(pair)
        ]
        origin = Origin(config="c", inputs={}, seed=0)
        write_shard(folder / f"eval/{number}/trajectories", "trajectories", rows, origin)
    return folder


def timing(iteration: int, stage: str, *seconds: float) -> dict[str, Any]:
    call = {"started": "2026-01-01T00:00:00+00:00", "made": True, "origin": None, "host": "one", "devices": []}
    calls = [{**call, "seconds": value} for value in seconds]
    return {"stage": stage, "iteration": iteration, "calls": calls}


def test_training_cells(played: Path) -> None:
    first, second = tables(collect(played))["Training"].rows
    assert first == (*("1", "50.0%", "41.2-58.8%", "12.3", "75.0%", "1.26", "4", "3", "2", "1", "0.0123", "0.500"),)
    assert second == ("2", "62.5%", *("-",) * 10)


def test_cells_of_the_reward_model_and_of_difficulty(played: Path) -> None:
    found = {"p_plus": 0.75, "p_minus": 0.5, "mu": 1.25, "theorem1_bound": 0.0458}
    found |= {"rm_process_accuracy": 0.65, "rm_process_low": 0.6, "rm_process_high": 0.7, "rm_process_balanced": None}
    found |= {"importance_ratio_median": 3.0, "importance_ratio_max": 7.0, "one_sided_tasks": 0.25, "good_steps": 0.4}
    write(played / "1/metrics.json", found)
    summary = collect(played)
    votes = ("1", "75.0%", "50.0%", "1.25", "4.6%", "-", "-", "-")
    assert tables(summary)["Reward model"].rows == ((*votes, "65.0%", "60.0-70.0%", *["-"] * 3),)
    assert tables(summary)["Difficulty"].rows == (("1", "3.00", "7.00", "25.0%", "40.0%", "-"),)


def test_evaluation_cells_and_the_gain(played: Path) -> None:
    table = tables(collect(played))["Held-out tasks"]
    assert table.columns == ("iteration", "episodes", "success", "95% interval", "steps", "place")
    assert table.rows == (("0", "4", "25.0%", "-", "-", "25.0%"), ("2", "4", "75.0%", "-", "-", "75.0%"))
    # Both tasks gained one of two episodes: no spread between tasks, so Newcombe's interval of 1/4
    # [4.6, 69.9] and 3/4 [30.1, 95.4]: 50 - sqrt(2) 44.9 and 50 + sqrt(2) 20.4.
    assert table.note == "last minus first: +50.0 points, 95% interval -13.5 to +78.9"


def test_every_held_out_split_has_a_table_a_gain_and_a_series(played: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Out of domain nothing was won at first and all after two iterations; the main split is as it was alone."""
    write(played / "eval/0/metrics.json", {"split": "seen", "episodes": 4, "success": 0.25, "by_kind": {}})
    for number, outcome in ((0, -1), (2, 1)):
        root = played / f"splits/unseen/eval/{number}"
        write(root / "metrics.json", {"split": "unseen", "episodes": 2, "success": (1 + outcome) / 2})
        rows = [trajectory(f"c{index}", task_id=f"c{index}", outcome=outcome).row() for index in range(2)]
        write_shard(root / "trajectories", "trajectories", rows, Origin(config="c", inputs={}, seed=0))
    assert run(["report", "--run", str(played)]) == 0
    said = capsys.readouterr().out
    assert "Held-out tasks, seen" in said and "Held-out tasks, unseen" in said
    assert "+50.0 points" in said and "+100.0 points" in said
    seen, unseen = json.loads((played / "report/report.json").read_text())["held_out"]
    assert [row["success"] for row in seen["evaluations"]] == [0.25, 0.75]
    assert (unseen["split"], unseen["gain"]["estimate"]) == ("unseen", 1.0)


def test_times_add_up_calls_and_leave_the_warm_start_out_of_the_loop(played: Path) -> None:
    table = tables(collect(played))["Seconds"]
    assert table.rows[0] == ("1", "4.2", "-", "-", "-", "-", "2.0", "-", "6.2")
    assert table.note == "outside of the loop: warm-start 60.0"


def test_a_report_is_no_part_of_the_time_and_stays_as_it_is_when_it_is_made_again(played: Path) -> None:
    """Each call leaves a record of its own time."""
    files: list[dict[str, bytes]] = []
    for _ in range(2):
        assert run(["report", "--run", str(played), "--overwrite"]) == 0
        files.append({path.name: path.read_bytes() for path in (played / "report").rglob("*") if path.is_file()})
    assert (played / "timings/1-report.json").exists() and files[0] == files[1]


def test_calls_of_an_earlier_origin_are_no_part_of_the_time(played: Path) -> None:
    record = timing(1, "rollout", 30.0, 4.0, 0.5)
    for call, origin in zip(record["calls"], ("old", "new", "new"), strict=True):
        call["origin"] = origin
    write(played / "timings/1-rollout.json", record)
    assert tables(collect(played))["Seconds"].rows[0][1] == "4.5"


def test_what_met_a_limit_is_counted_for_rollouts_judgements_and_trainings(played: Path) -> None:
    assert "Limits" not in tables(collect(played))
    counts = {"episodes": 8, "won": 1, "steps": 40, "invalid_actions": 3, "truncated": 2, "context_stops": 1}
    write(played / "1/trajectories" / MANIFEST, {"counts": counts | {"env_errors": 0}})
    judged = {"steps": 40, "skipped": 4, "judgements": 108, "unparsable": 6, "truncated": 5, "failed": 12}
    write(played / "1/scores" / MANIFEST, {"counts": judged})
    write(played / "1/policy/metrics.json", {"replies": 40, "replies_too_long": 7, "skipped_updates": 2})
    write(played / "1/rm/metrics.json", {"replies": 102, "replies_too_long": 9, "skipped_updates": 0})
    assert tables(collect(played))["Limits"].rows == (
        ("1", "8", "1", "0", "40", "2", "3", "40", "4", "108", "5", "6", "12", "7", "2", "9", "0"),
    )


def test_broken_episodes_are_no_part_of_the_gain(tmp_path: Path) -> None:
    """Won before, won and broken after: the policy has lost nothing."""
    for number, reasons in ((0, ("won", "won")), (1, ("won", "env_error"))):
        rows = [
            trajectory(f"a{index}", stop_reason=reason, outcome=1 if reason == "won" else -1).row()
            for index, reason in enumerate(reasons)
        ]
        write(tmp_path / f"eval/{number}/metrics.json", {"episodes": 2, "success": 1.0})
        origin = Origin(config="c", inputs={}, seed=0)
        write_shard(tmp_path / f"eval/{number}/trajectories", "trajectories", rows, origin)
    gain = collect(tmp_path).gain
    assert gain is not None and gain.estimate == 0.0


@pytest.mark.parametrize(
    "record",
    [
        {"iteration": 1},
        {"iteration": "x", "stage": "rollout", "calls": []},
        {"iteration": 1, "stage": "rollout", "calls": [{}]},
        {"iteration": 1, "stage": "rollout", "calls": [{"origin": None, "seconds": 1, "figures": {"calls": "x"}}]},
    ],
)
def test_damaged_times_are_named(played: Path, record: object) -> None:
    write(played / "timings/1-rollout.json", record)
    with pytest.raises(UserError, match=r"1-rollout\.json: not the times of a stage"):
        collect(played)


def test_slices_of_a_stage_count_once_with_the_longest(played: Path) -> None:
    for index, seconds in ((1, 7.0), (2, 9.0)):
        write(played / f"timings/1-rollout-slice-{index}-of-2.json", timing(1, "rollout", seconds))
    assert tables(collect(played))["Seconds"].rows[0][1] == "9.0"


WIDE = Table(
    title="Limits",
    columns=("iteration", "episodes", "not trained", "skipped"),
    rows=(("1", "12345", "0", "7"), ("evaluation 10", "8", "-", "-")),
    note="a note",
)


def test_a_table_that_is_too_wide_becomes_several_with_the_first_column_each() -> None:
    """A line has 1 + (13 + 3) + (8 + 3) + (11 + 3) + (7 + 3) characters: 52."""
    assert list(fitting(WIDE, 52)) == [WIDE]
    first, second = fitting(WIDE, 51)
    assert (first.title, first.columns, first.note) == ("Limits", ("iteration", "episodes", "not trained"), "")
    assert (second.title, second.columns) == ("Limits, continued", ("iteration", "skipped"))
    assert second.rows == (("1", "7"), ("evaluation 10", "-")) and second.note == "a note"
    assert [part.columns[1:] for part in fitting(WIDE, 5)] == [("episodes",), ("not trained",), ("skipped",)]


@pytest.mark.parametrize("width", [28, 51, 52, 80])
def test_no_word_of_a_table_is_broken_and_no_line_is_longer_than_the_terminal(width: int) -> None:
    text = as_text("run", [WIDE], width=width)
    assert max(map(len, text.splitlines())) <= width
    assert {"iteration", "episodes", "trained", "skipped", "evaluation"} <= set(text.split())
    assert "7" in text.split()  # nothing is cropped


def test_tables_are_as_wide_as_the_terminal_and_the_file_is_not(
    played: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert run(["report", "--run", str(played)]) == 0
    said = capsys.readouterr().out
    written = (played / "report/report.txt").read_text()
    assert "Training, continued" in said and "Training, continued" not in written
    first, *_, last = written.splitlines()
    assert first.startswith("held-out success 25.0% to 75.0%") and said.splitlines()[-1] == last
    assert last.startswith("mu 1.26")


def test_markup_in_cells_is_text() -> None:
    table = Table(title="T", columns=("a", "b"), rows=(("<b>|[bold]", "1"),))
    page = report_page("<run>", [], [tables_section([table])])
    assert "<td>&lt;b&gt;|[bold]</td>" in page and "<h1>&lt;run&gt;</h1>" in page
    assert "<b>|[bold]" in as_text("run", [table])


def test_what_a_terminal_would_obey_is_replaced_in_plain_text() -> None:
    """An escape sequence that sets the title, a bell, a direction mark and C1 of eight bits; the newline stays."""
    hostile = "a\x1b]0;owned\x07b\u202ec\x9b2Jd\ne"
    table = Table(title=hostile, columns=("a", "b"), rows=((hostile, "1"),), note=hostile)
    text = as_text(hostile, [table])
    assert all(line.isprintable() for line in text.split("\n"))
    assert text.count("a ]0;owned b c 2Jd") == 4 and "\n  e" in text


def test_the_command_prints_the_table_and_writes_what_dvc_plots(
    played: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", "--run", str(played)]) == 0
    assert "last minus first: +50.0 points" in capsys.readouterr().out
    report = played / "report"
    assert {path.name for path in report.iterdir()} >= {
        "report.txt",
        "report.html",
        "report.json",
    }
    assert [row["success"] for row in json.loads((report / "report.json").read_text())["iterations"]] == [0.5, 0.625]
    assert json.loads((report / "metrics.json").read_text()) == {
        **{"held_out": 0.75, "gain": 0.5, "gain_low": pytest.approx(-0.135, abs=5e-4)},
        **{"gain_high": pytest.approx(0.789, abs=5e-4), "mu": 1.257, "hours": 0.018},  # 66.25 s
    }
    pictures = {path.name: path.read_text() for path in (report / "curves").iterdir()}
    assert pictures.keys() == {f"{name}.svg" for name in ("success", "mu", "judge", "entropy", "kl", "steps")}
    assert all(picture.startswith("<svg ") and "</svg>" in picture for picture in pictures.values())


def test_a_run_that_does_not_exist_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "--run", str(tmp_path / "none")]) == 2
    assert "no such run" in capsys.readouterr().err
