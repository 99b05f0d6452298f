"""The tables of a report about k answers to a question (`rla.metrics.at_k`), and about the use of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rla.metrics.tool_use import TOOL_FIGURES
from rla.pipeline.execution import COUNT, SECONDS, statuses_of
from rla.report.collect import RunSummary, titled_splits
from rla.report.tables import Table, bounds, joined_title, number, percent

FIGURES = ("avg", "maj", "pass", "best")
COUNTED = ("tool_calls", "tool_round_tokens", "tool_sampled_entropy")  # figures that are no shares


def of_all_answers(row: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """`avg@8` and so on of the metrics of an evaluation: the figures of all answers of a question."""
    found = row.get("at_k", {})
    size = str(found.get("n"))
    return {f"{figure}@{size}": found[figure][size] for figure in FIGURES if size in found.get(figure, {})}


def answer_tables(summary: RunSummary) -> list[Table]:
    """One for each held-out split, and one of its sources where there are several."""
    made = []
    for found in titled_splits(summary):
        rows = [row for row in found.evaluations if row.get("at_k", {}).get("n", 0) > 1]
        made += [answer_table(rows, found.split), source_table(rows, found.split)]
    return made


def answer_table(rows: Sequence[Mapping[str, Any]], split: str) -> Table:
    """One line per evaluation: figures of all answers with intervals, then those of fewer."""
    wide = list(dict.fromkeys(name for row in rows for name in of_all_answers(row)))
    narrow = [name for name in dict.fromkeys(name for row in rows for name in smaller(row)) if name not in wide]
    columns = ["iteration"]
    for name in wide:
        columns += [name, "95% interval"]
    lines = []
    for row in rows:
        cells = [str(row["iteration"])]
        for name in wide:
            figure = of_all_answers(row).get(name, {})
            cells += [percent(figure.get("estimate")), bounds(interval_row(figure), "figure")]
        lines.append((*cells, *(percent(smaller(row).get(name)) for name in narrow)))
    note = "a question is one draw; pass: one of k is right; maj: a vote of k; best: published bootstrap of pass"
    title = joined_title("Answers to held-out questions", split)
    return Table(title=title, columns=(*columns, *narrow), rows=tuple(lines), note=note)


def smaller(row: Mapping[str, Any]) -> dict[str, float]:
    """`pass@2` and so on: the estimates of fewer than all answers. Of one answer avg says the same."""
    found = row.get("at_k", {})
    return {
        f"{figure}@{size}": value["estimate"]
        for figure in ("pass", "best")
        for size, value in found.get(figure, {}).items()
        if size not in ("1", str(found.get("n")))
    }


def source_table(rows: Sequence[Mapping[str, Any]], split: str) -> Table:
    """avg of the last evaluation by source; without rows where there is one source."""
    title = joined_title("Answers by source", split)
    found = of_all_answers(rows[-1]) if rows else {}
    sources = next(iter(found.values()))["by_source"] if found else {}
    if len(sources) < 2:
        return Table(title=title, columns=(), rows=())
    lines = [
        (
            source,
            number(of_source["questions"], 0),
            *(percent(figure["by_source"].get(source, {}).get("estimate")) for figure in found.values()),
        )
        for source, of_source in sources.items()
    ]
    lines.append(("mean of sources", number(len(sources), 0), *(percent(one["macro"]) for one in found.values())))
    return Table(title=title, columns=("source", "questions", *found), rows=tuple(lines), note="the last evaluation")


def interval_row(figure: Mapping[str, Any]) -> dict[str, Any]:
    return {"figure_low": figure.get("low"), "figure_high": figure.get("high")}


def tool_tables(summary: RunSummary) -> list[Table]:
    """Training tasks, then each held-out split with the sources of its last evaluation, then how the calls ran."""
    made = [tool_table("Tools", [(str(row["iteration"]), row) for row in summary.iterations])]
    for found in titled_splits(summary):
        lines = [(str(row["iteration"]), row) for row in found.evaluations]
        of_kind = found.evaluations[-1].get("tool_by_kind", {}) if found.evaluations else {}
        lines += list(of_kind.items()) if len(of_kind) > 1 else []
        made.append(tool_table(joined_title("Tools, held out", found.split), lines))
    return [*made, execution_table(summary)]


PLAYING = {"rollout": "", "evaluate": "evaluation "}  # stages that play episodes, and how their lines are named
LASTED = ("ran, mean", "waited, mean", "ran, 99%", "waited, 99%")  # of `SECONDS`, in that order


def execution_table(summary: RunSummary) -> Table:
    """One line for each stage that ran calls: how they ended, and how long they took on this machine."""
    lines = [
        (f"{PLAYING[stage]}{iteration}", figures)
        for stage in PLAYING
        for (iteration, of), figures in summary.figures.items()
        if of == stage and COUNT in figures
    ]
    ended = sorted({status for _, figures in lines for status in statuses_of(figures)})
    rows = tuple(
        (
            name,
            number(figures.get("calls"), 0),
            *(number(statuses_of(figures).get(status, 0), 0) for status in ended),
            *(number(figures.get(key), 3) for key in SECONDS),
        )
        for name, figures in lines
    )
    note = "seconds that a program ran, and that its episode waited for the result; 99%: no more in 99 of 100 calls"
    columns = ("iteration", "calls", *ended, *LASTED)
    return Table(title="Execution of calls", columns=columns, rows=rows, note=note)


def tool_table(title: str, lines: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """One line for each that has figures of tools."""
    rows = tuple(
        (name, *(number(row.get(key), 2) if key in COUNTED else percent(row.get(key)) for key in TOOL_FIGURES))
        for name, row in lines
        if row.get("tool_calls") is not None
    )
    note = "sampled entropy: mean of -log p of the sampled tokens; a source: of the last evaluation"
    return Table(title=title, columns=("iteration", *TOOL_FIGURES.values()), rows=rows, note=note)
