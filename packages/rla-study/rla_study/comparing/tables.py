"""The tables of a comparison, as plain text cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rla.metrics.custom import brought
from rla.metrics.intervals import Interval
from rla.report.tables import ABSENT, LOOP, Table, joined_title, number, percent
from rla_study.comparing.runs import SEED, ComparedArm, ComparedRun, differing_keys, parameter_text
from rla_study.comparing.success import Reached, SplitResult

NONE_SHARED = "no iteration after the start was evaluated in all runs; call `rla evaluate --iteration N`"
FIRST_AND_LAST = {"mu": "mu", "rm_process_balanced": "right about steps", "rm_outcome_accuracy": "right about outcomes"}
ADAPTED = {
    **{"tasks_proposed": "proposed", "tasks_valid": "valid", "accepted": "accepted", "rejected": "rejected"},
    **{"returned": "returned"},
}
AMOUNTS = {
    **{"rollout_episodes": "episodes", "rollout_steps": "replies", "judged_judgements": "judgements"},
    **{"policy_tokens": "tokens trained, policy", "rm_tokens": "tokens trained, reward model"},
}


def brought_tables(arms: Sequence[ComparedArm], result: SplitResult, *, titled: bool) -> list[Table]:
    """The tables that packages provide about each run, at the last of the compared iterations.

    `compared(rows) -> Table` is a member of their classes (`rla.metrics.custom`): one line per run; `rows`: the metrics
    of an evaluation by the name of its run.
    """
    if not result.points:
        return []
    rows = {
        run.name: row
        for arm in arms
        for run in arm.runs
        for one in run.summary.held_out
        for row in one.evaluations
        if row["iteration"] == result.points[-1] and one.split in ("", result.split)
    }
    note = f"{after_text(result.points[-1:])}, each run on all of its questions"
    split = result.split if titled else ""
    made = [one.compared(rows) for one in brought("compared")]
    return [replace(table, title=joined_title(table.title, split), note=note) for table in made]


def params_table(arms: Sequence[ComparedArm]) -> Table:
    """One line for each parameter that differs, and one for the seeds if they do."""
    rows = [(key, *(parameter_text(arm.runs[0].params, key) for arm in arms)) for key in differing_keys(arms)]
    seeds = tuple(", ".join(parameter_text(run.params, SEED) for run in arm.runs) for arm in arms)
    if len(set(seeds)) > 1:
        rows.append((SEED, *seeds))
    return Table(title="Parameters that differ", columns=("parameter", *(arm.name for arm in arms)), rows=tuple(rows))


def success_table(result: SplitResult, *, titled: bool) -> Table:
    """One line per arm; `titled`: the title names the split."""
    columns = ("run", "seeds", "at the start", "success", "95% interval", "minus the base", "95% interval")
    title = joined_title("Held-out success", result.split if titled else "")
    base = result.reached[0].name
    rows = tuple(_success_row(one, is_base=one is result.reached[0]) for one in result.reached)
    return Table(title=title, columns=columns, rows=rows, note=_success_note(result, base))


def _success_row(one: Reached, *, is_base: bool) -> tuple[str, ...]:
    over = ("base", ABSENT) if is_base else (_points_text(one.over), _interval_text(one.over, signed=True))
    success = percent(one.success.estimate if one.success else None)
    return (one.name, str(one.seeds), percent(one.start), success, _interval_text(one.success), *over)


def _success_note(result: SplitResult, base: str) -> str:
    if not result.points:
        return NONE_SHARED
    when = after_text(result.points)
    if not result.tasks:
        return f"{when}: no held-out task was played by all; compare fewer runs"
    tasks = f"on the {result.tasks} tasks that all played"
    if max(result.played) > result.tasks:
        tasks += f", of {' and '.join(map(str, sorted(set(result.played))))} that each played"
    how = "intervals with tasks as clusters, differences paired by task"
    if any(one.seeds > 1 for one in result.reached):
        how += ", by bootstrap over seeds and tasks if a line or the base has several seeds"
    return f"{when}, {tasks}; base: {base}; {how}"


def _points_text(value: Interval | None) -> str:
    return ABSENT if value is None else f"{100 * value.estimate:+.1f}"


def _interval_text(value: Interval | None, *, signed: bool = False) -> str:
    """`41.2 to 58.8`, in per cent or points."""
    form = "+.1f" if signed else ".1f"
    return ABSENT if value is None else f"{100 * value.low:{form}} to {100 * value.high:{form}}"


def judge_table(runs: Sequence[ComparedRun], until: int) -> Table:
    """The first and the last value of each run's reward model metrics up to an iteration."""
    columns = ("run", *(f"{name}, {which}" for name in FIRST_AND_LAST.values() for which in ("first", "last")))
    rows = tuple((run.name, *(cell for key in FIRST_AND_LAST for cell in ends(run, key, until))) for run in runs)
    note = (
        f"{_until_text(until)}; the reward model is useful if mu > 1; right about steps: share of votes that the "
        "environment's solver confirms, good and bad steps weighted alike"
    )
    return Table(title="Reward model", columns=columns, rows=_known_rows(rows), note=note)


def ends(run: ComparedRun, key: str, until: int) -> tuple[str, str]:
    known = [row[key] for row in _rows_until(run, until) if row.get(key) is not None]
    if not known:
        return ABSENT, ABSENT
    first, last = (number(value, 2) if key == "mu" else percent(value) for value in (known[0], known[-1]))
    return first, last


def adapted_table(runs: Sequence[ComparedRun], until: int) -> Table:
    rows = tuple((run.name, *sums(run, ADAPTED, until)) for run in runs)
    note = f"tasks, {_until_text(until)}"
    return Table(title="Changed tasks", columns=("run", *ADAPTED.values()), rows=_known_rows(rows), note=note)


def amounts_table(runs: Sequence[ComparedRun], until: int) -> Table:
    rows = tuple((run.name, *sums(run, AMOUNTS, until)) for run in runs)
    note = f"{_until_text(until)}; a reply is one action of the policy"
    return Table(title="Played and trained", columns=("run", *AMOUNTS.values()), rows=_known_rows(rows), note=note)


def seconds_table(runs: Sequence[ComparedRun], until: int) -> Table:
    """Seconds of each stage of the loop up to an iteration, followed by the total outside the loop."""
    rows = []
    for run in runs:
        seconds = run.summary.seconds
        spent = [_sum_known(seconds.get((i, stage)) for i in range(1, until + 1)) for stage in LOOP]
        outside = _sum_known(value for (_, stage), value in seconds.items() if stage not in LOOP)
        rows.append((run.name, *(number(value, 1) for value in (*spent, _sum_known(spent), outside))))
    note = f"{_until_text(until)}; outside: warm start, all evaluations and everything else outside the loop"
    columns = ("run", *LOOP, "sum", "outside")
    return Table(title="Seconds", columns=columns, rows=_known_rows(rows), note=note)


def missing_table(arms: Sequence[ComparedArm], results: Sequence[SplitResult]) -> Table:
    """The data that the comparison lacked, one per line."""
    runs = [run for arm in arms for run in arm.runs]
    rows = [line for run in runs for line in _missing_of(run, max(one.last for one in runs))]
    for result in results:
        for one, found in zip(result.reached, result.evaluations, strict=True):
            if not result.points or not set(result.points) <= set(found):
                where = f" on {result.split}" if len(results) > 1 else ""
                rows.append((one.name, f"it was {_evaluated_text(result.points, found, where)}"))
    return Table(title="What is missing", columns=("run", "what"), rows=tuple(rows))


def _evaluated_text(wanted: Sequence[int], found: Sequence[int], where: str) -> str:
    """`not evaluated after iteration 2, only after iteration 0`."""
    if not found:
        return f"never evaluated{where}"
    only = f"only {after_text(found)}"
    return f"not evaluated{where} {after_text(wanted)}, {only}" if wanted else f"evaluated{where} {only}"


def after_text(points: Sequence[int]) -> str:
    """`after iterations 2, 4 and 6`."""
    *first, last = map(str, points)
    return f"after iterations {', '.join(first)} and {last}" if first else f"after iteration {last}"


def _until_text(until: int) -> str:
    return f"iterations 1 to {until}" if until > 1 else f"iteration {until}"


def _missing_of(run: ComparedRun, longest: int) -> Iterator[tuple[str, str]]:
    if run.last < longest:
        yield run.name, f"it has {run.last} of {longest} iterations"
    if not run.summary.seconds:
        yield run.name, "no times of stages were kept"


def _rows_until(run: ComparedRun, until: int) -> list[Mapping[str, Any]]:
    return [row for row in run.summary.iterations if row["iteration"] <= until]


def sums(run: ComparedRun, keys: Mapping[str, str], until: int) -> list[str]:
    """The sum of each key over the iterations; `-` if no iteration has it."""
    rows = _rows_until(run, until)
    return [number(_sum_known(row.get(key) for row in rows), 0) for key in keys]


def _sum_known(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return float(sum(known)) if known else None


def _known_rows(rows: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """The rows without those that are empty for all runs."""
    return tuple(rows) if any(cell != ABSENT for row in rows for cell in row[1:]) else ()
