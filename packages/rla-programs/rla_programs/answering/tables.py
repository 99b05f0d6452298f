"""Tables and figures for k answers to a question (`rla_programs.answering.at_k`) and for the use of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.report.collect import RunSummary, titled_splits
from rla.report.tables import Table, bounds, joined_title, number, percent
from rla.store.reading import listed_parts
from rla.store.records import Task
from rla_programs.execution.figures import COUNT, SECONDS, joined_calls, statuses_of, told_execution
from rla_programs.execution.surroundings import PLAYING, surroundings_table
from rla_programs.tool.tool_use import FOLLOWED, TOOL_FIGURES, had_tools, tool_figures, tool_figures_by_kind

FIGURES = ("avg", "maj", "pass", "best")
COUNTED = ("tool_calls", "tool_round_tokens", "tool_sampled_entropy")  # figures that are not shares


class AnswerTables:
    """Answers to held-out questions, for `rla.tables`."""

    def tables(self, summary: RunSummary) -> list[Table]:
        return answer_tables(summary)

    def named(self, row: Mapping[str, Any]) -> dict[str, float]:
        """`avg@8` and so on: the estimates for all answers of a question, then for fewer."""
        return {name: figure["estimate"] for name, figure in _of_all_answers(row).items()} | smaller(row)

    def compared(self, rows: Mapping[str, Mapping[str, Any]]) -> Table:
        return _compared_answers(rows)


class ToolTables:
    """The use of tools and how their calls ran, for `rla.tables`."""

    figures = FOLLOWED

    def measure(self, trajectories: Path, config: Config, *, held_out: Sequence[Task]) -> dict[str, Any]:
        parts = listed_parts(trajectories, "trajectories")
        if not any(had_tools(path, entry) for path, entry in parts.items()):
            return {}
        from rla_programs.tool.tool_frames import read_tool_episodes  # imports polars, which takes a while

        episodes = read_tool_episodes(trajectories)
        return tool_figures_by_kind(episodes) if held_out else tool_figures(episodes)

    def joined(self, found: Sequence[Mapping[str, float]]) -> dict[str, float]:
        return joined_calls(found)

    def told(self, figures: Mapping[str, float]) -> str:
        return told_execution(figures)

    def tables(self, summary: RunSummary) -> list[Table]:
        return [*tool_tables(summary), surroundings_table(summary)]


def _of_all_answers(row: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """`avg@8` and so on from the metrics of an evaluation: the figures for all answers of a question."""
    found = row.get("at_k", {})
    size = str(found.get("n"))
    return {f"{figure}@{size}": found[figure][size] for figure in FIGURES if size in found.get(figure, {})}


def answer_tables(summary: RunSummary) -> list[Table]:
    """One table for each held-out split, and one of its sources if there are several."""
    made = []
    for found in titled_splits(summary):
        rows = [row for row in found.evaluations if row.get("at_k", {}).get("n", 0) > 1]
        made += [_answer_table(rows, found.split), _source_table(rows, found.split)]
    return made


def _answer_table(rows: Sequence[Mapping[str, Any]], split: str) -> Table:
    """One line per evaluation: figures for all answers with intervals, then for fewer."""
    wide = list(dict.fromkeys(name for row in rows for name in _of_all_answers(row)))
    narrow = [name for name in dict.fromkeys(name for row in rows for name in smaller(row)) if name not in wide]
    columns = ["iteration"]
    for name in wide:
        columns += [name, "95% interval"]
    lines = []
    for row in rows:
        cells = [str(row["iteration"])]
        for name in wide:
            figure = _of_all_answers(row).get(name, {})
            cells += [percent(figure.get("estimate")), bounds(_interval_row(figure), "figure")]
        lines.append((*cells, *(percent(smaller(row).get(name)) for name in narrow)))
    note = "a question is one draw; pass: one of k is right; maj: a vote of k; best: published bootstrap of pass"
    title = joined_title("Answers to held-out questions", split)
    return Table(title=title, columns=(*columns, *narrow), rows=tuple(lines), note=note)


def smaller(row: Mapping[str, Any]) -> dict[str, float]:
    """`pass@2` and so on: the estimates for fewer than all answers. For one answer they equal avg."""
    found = row.get("at_k", {})
    return {
        f"{figure}@{size}": value["estimate"]
        for figure in ("pass", "best")
        for size, value in found.get(figure, {}).items()
        if size not in ("1", str(found.get("n")))
    }


def _source_table(rows: Sequence[Mapping[str, Any]], split: str) -> Table:
    """avg of the last evaluation by source; no rows if there is only one source."""
    title = joined_title("Answers by source", split)
    found = _of_all_answers(rows[-1]) if rows else {}
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


def _interval_row(figure: Mapping[str, Any]) -> dict[str, Any]:
    return {"figure_low": figure.get("low"), "figure_high": figure.get("high")}


def _compared_answers(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """One line per run with several answers per question; `rows`: the metrics of its evaluation, by its name."""
    found = {name: _of_all_answers(row) for name, row in rows.items() if row.get("at_k", {}).get("n", 0) > 1}
    names = list(dict.fromkeys(name for figures in found.values() for name in figures))
    columns = ["run"]
    for name in names:
        columns += [name, "95% interval"]
    lines = []
    for run_name, figures in found.items():
        cells = [run_name]
        for name in names:
            figure = figures.get(name, {})
            cells += [percent(figure.get("estimate")), bounds(_interval_row(figure), "figure")]
        lines.append(tuple(cells))
    return Table(title="Held-out answers", columns=tuple(columns), rows=tuple(lines))


def tool_tables(summary: RunSummary) -> list[Table]:
    """Training tasks, then each held-out split with the sources of its last evaluation, then how the calls ran."""
    made = [_tool_table("Tools", [(str(row["iteration"]), row) for row in summary.iterations])]
    for found in titled_splits(summary):
        lines = [(str(row["iteration"]), row) for row in found.evaluations]
        of_kind = found.evaluations[-1].get("tool_by_kind", {}) if found.evaluations else {}
        lines += list(of_kind.items()) if len(of_kind) > 1 else []
        made.append(_tool_table(joined_title("Tools, held out", found.split), lines))
    return [*made, _execution_table(summary)]


LASTED = ("ran, mean", "waited, mean", "ran, 99%", "waited, 99%")  # of `SECONDS`, in that order


def _execution_table(summary: RunSummary) -> Table:
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


def _tool_table(title: str, lines: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """One line for each row with figures of tools."""
    rows = tuple(
        (name, *(number(row.get(key), 2) if key in COUNTED else percent(row.get(key)) for key in TOOL_FIGURES))
        for name, row in lines
        if row.get("tool_calls") is not None
    )
    note = "sampled entropy: mean of -log p of the sampled tokens; a source: of the last evaluation"
    return Table(title=title, columns=("iteration", *TOOL_FIGURES.values()), rows=rows, note=note)
