"""`rla compare`: runs side by side, as text for a terminal or as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rla.errors import UserError
from rla.report.render import as_text, curves_section, report_page, tables_section, terminal_width
from rla.report.tables import Table, gain_text
from rla.text import one_line
from rla_study.comparing.curves import comparison_panels
from rla_study.comparing.runs import ComparedArm, arms_of, compared_runs, differing_keys, parameter_text
from rla_study.comparing.success import SplitResult, split_names, split_result
from rla_study.comparing.tables import (
    NONE_SHARED,
    adapted_table,
    after_text,
    amounts_table,
    brought_tables,
    judge_table,
    missing_table,
    params_table,
    seconds_table,
    success_table,
)

FEW = 3  # parameters that a headline names
LONGEST_LINE = 2000  # characters of a headline


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`arms`: the base comes first. `until`: the last iteration to read of everything except evaluations."""

    arms: tuple[ComparedArm, ...]
    results: tuple[SplitResult, ...]
    until: int


def comparison(folders: Sequence[Path], *, base: Path | None = None, at: Sequence[int] = ()) -> Comparison:
    """`base`: the run whose arm the others are compared with, by default the first. `at`: the iterations to read.

    Raises UserError if runs cannot be compared, or if no run was evaluated at one of `at`.
    """
    chosen = base or next(iter(folders), None)
    others = [folder for folder in folders if chosen is None or folder.resolve() != chosen.resolve()]
    twice = len(folders) - len(others) > 1
    runs = compared_runs(list(folders) if twice or chosen is None else [chosen, *others])
    arms = arms_of(runs)
    splits = split_names(arms)
    known = {point for arm in arms for run in arm.runs for split in splits for point in run.evaluations(split)}
    if absent := sorted(set(at) - known):
        there = ", ".join(map(str, sorted(known))) or "none"
        raise UserError(f"--at {absent[0]}: no run was evaluated at that iteration; evaluated ones: {there}")
    started = [run.last for run in runs if run.last]
    return Comparison(
        arms=tuple(arms),
        results=tuple(split_result(arms, split, at) for split in splits),
        until=max(at) if at else min(started, default=0),
    )


def comparison_tables(found: Comparison) -> list[Table]:
    runs = [run for arm in found.arms for run in arm.runs]
    made = [
        *(success_table(result, titled=len(found.results) > 1) for result in found.results),
        *(
            table
            for result in found.results
            for table in brought_tables(found.arms, result, titled=len(found.results) > 1)
        ),
        params_table(found.arms),
        *(table(runs, found.until) for table in (judge_table, adapted_table, seconds_table, amounts_table)),
        missing_table(found.arms, found.results),
    ]
    return [table for table in made if table.rows]


def comparison_headline(found: Comparison) -> Iterator[str]:
    """Each arm's success over the base, and the parameters in which it differs."""
    base, *others = found.arms
    for result in found.results:
        where = f" on {result.split}" if len(found.results) > 1 else ""
        if not result.points:
            yield one_line(f"held-out success{where}: {NONE_SHARED}", LONGEST_LINE)
            continue
        when = after_text(result.points)
        for one in result.reached:
            if one.over is not None:
                said = f"held-out success{where} {when}, {one.name} minus {base.name}"
                yield f"{one_line(said, LONGEST_LINE)}: {gain_text(one.over)}"
    for arm in others:
        yield from _parameters_line(arm, base)


def _parameters_line(arm: ComparedArm, base: ComparedArm) -> Iterator[str]:
    params, those_of_base = arm.runs[0].params, base.runs[0].params
    keys = differing_keys([arm, base])
    if not keys:
        alike = {run.outcome.seed for run in arm.runs} == {run.outcome.seed for run in base.runs}
        yield f"{arm.name} and {base.name} {'have equal parameters' if alike else 'differ in their seeds alone'}"
    elif len(keys) > FEW:
        yield f"{arm.name} and {base.name} differ in {len(keys)} parameters"
    else:
        said = (f"{key} {parameter_text(params, key)} against {parameter_text(those_of_base, key)}" for key in keys)
        yield one_line(f"{arm.name} and {base.name} differ in {', '.join(said)}", LONGEST_LINE)


def comparison_text(found: Comparison) -> str:
    head = list(comparison_headline(found))
    tables = as_text(_title_of(found), comparison_tables(found), width=terminal_width())
    return "\n".join([*head, "", tables]) if head else tables


def comparison_page(found: Comparison) -> str:
    """The page: open tables, with the curves after those of success."""
    tables = comparison_tables(found)
    first = [table for table in tables if table.title.startswith("Held-out")]
    panels = comparison_panels(found.arms, [result.split for result in found.results])
    sections = [
        tables_section(first, name="success", title="Held-out success", unfolded=True),
        curves_section(panels),
        tables_section(
            [table for table in tables if table not in first],
            title="Parameters, reward model, tasks and cost",
            unfolded=True,
        ),
    ]
    return report_page(_title_of(found), list(comparison_headline(found)), sections)


def _title_of(found: Comparison) -> str:
    return f"Comparison of {', '.join(arm.name for arm in found.arms)}"
