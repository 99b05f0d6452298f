"""The tables of a report and its headline, as plain text: made once, drawn for the terminal and as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.adaptation.drafting import Tally, added
from rla.config import resolved
from rla.config.schema import ABSENT as NOT_THERE
from rla.config.schema import parameter_differences, shown_key, shown_value
from rla.envs.registry import default_config
from rla.metrics.custom import brought
from rla.metrics.guards import warned
from rla.metrics.intervals import Interval
from rla.report.collect import HeldOut, Row, RunSummary, gain_between, titled_splits
from rla.store.layout import UNTRAINED, artifact
from rla.store.manifest import read_json, read_run_config, run_config_path
from rla.text import counted, duration

ABSENT = "-"
LOOP = ("rollout", "score-steps", "validate-tasks", "compute-rewards", "train-policy", "train-rm", "adapt-env")
# Heading, key of the metrics, and form: `%`, a number of digits, or bounds KEY_low and KEY_high as an `interval` in per
# cent or a `range` of numbers.
Column = tuple[str, str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`rows` have one cell per column. A `listing` is left out of the text of a report, because it is long."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    listing: bool = False


def tables_of_run(summary: RunSummary) -> list[Table]:
    """All tables that have rows. Raises UserError for a damaged `config.yaml`."""
    made = [
        _warnings(summary),
        *_learning(summary),
        *map(_evaluations, titled_splits(summary)),
        _probe(summary),
        *(table for one in brought("tables") for table in one.tables(summary)),
        *_adaptation(summary),
        *parameters_tables(summary.run),
        _limits(summary),
        _seconds(summary),
    ]
    return [table for table in made if table.rows]


def percent(value: Any) -> str:
    return ABSENT if value is None else f"{100 * float(value):.1f}%"


def number(value: Any, digits: int) -> str:
    return ABSENT if value is None else f"{float(value):.{digits}f}"


def bounds(row: Mapping[str, Any], name: str = "success") -> str:
    """`41.2-58.8%`, or `-` if a bound is unknown."""
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return ABSENT if low is None or high is None else f"{100 * low:.1f}-{100 * high:.1f}%"


def joined_title(title: str, split: str) -> str:
    return f"{title}, {split}" if split else title


def _cell(row: Row, key: str, form: str | int) -> str:
    if isinstance(form, int):
        return number(row.get(key), form)
    if form == "range":
        ends = [row.get(f"{key}_{end}") for end in ("low", "high")]
        return ABSENT if None in ends else " to ".join(number(end, 2) for end in ends)
    return bounds(row, key) if form == "interval" else percent(row.get(key))


def _by_iteration(
    title: str, columns: Sequence[Column], rows: Sequence[Row], *, note: str, shown: Callable[[Row], Any] | None = None
) -> Table:
    """One line for each of the `rows` that is `shown`: by default, for those that have a value of any column."""
    shown = shown or (lambda row: any(row.get(key) is not None for _, key, _ in columns))
    headings = ("iteration", *(heading for heading, _, _ in columns))
    cells = [
        (str(row["iteration"]), *(_cell(row, key, form) for _, key, form in columns)) for row in rows if shown(row)
    ]
    return Table(title=title, columns=headings, rows=tuple(cells), note=note)


def _learning(summary: RunSummary) -> Iterator[Table]:
    """Per iteration: training, the votes of the reward model, and difficulty."""
    yield _by_iteration(
        "Training",
        (
            *(("success", "success", "%"), ("95% interval", "success", "interval"), ("steps", "mean_steps", 1)),
            *(("RM accuracy", "rm_outcome_accuracy", "%"), ("mu", "mu", 2)),
            *(("proposed", "tasks_proposed", 0), ("valid", "tasks_valid", 0)),
            *(("accepted", "accepted", 0), ("rejected", "rejected", 0)),
            *(("KL", "policy_approx_kl", 4), ("entropy", "policy_entropy", 3)),
        ),
        summary.iterations,
        shown=lambda row: True,
        note="success on sampled training tasks; the reward model is useful if mu > 1; KL of the trained policy from "
        "the one that played",
    )
    yield _by_iteration(
        "Reward model",
        (
            *(("p+", "p_plus", "%"), ("p-", "p_minus", "%"), ("mu", "mu", 2), ("bound", "theorem1_bound", "%")),
            *(("outcome", "rm_outcome_accuracy", "%"), ("itself", "self_agreement", "%")),
            *(("unparsable", "unparsable_votes", "%"), ("right", "rm_process_accuracy", "%")),
            *(("95% interval", "rm_process", "interval"), ("balanced", "rm_process_balanced", "%")),
            *(("on good", "rm_process_good", "%"), ("on bad", "rm_process_bad", "%")),
        ),
        summary.iterations,
        note="p+, p-: votes of +1 in won episodes, of -1 in lost ones; bound: of Theorem 1; outcome, itself: agreement "
        "with them; right: votes that the environment's solver confirms, balanced over good and bad steps",
    )
    yield _by_iteration(
        "Difficulty",
        (
            *(("ratio, median", "importance_ratio_median", 2), ("largest", "importance_ratio_max", 2)),
            *(("one-sided", "one_sided_tasks", "%"), ("steps that help", "good_steps", "%")),
            ("way covered", "distance_covered", "%"),
        ),
        summary.iterations,
        note="ratio: of tasks that are won and lost; way covered: of the solver's distance, at the nearest point",
    )


def _evaluations(found: HeldOut) -> Table:
    """One line per evaluation on a held-out split: success overall and by kind of task."""
    kinds = sorted({kind for row in found.evaluations for kind in row.get("by_kind", {})})
    rows = [
        row | {f"kind {kind}": row.get("by_kind", {}).get(kind, {}).get("success") for kind in kinds}
        for row in found.evaluations
    ]
    columns: list[Column] = [*EVALUATED, *((KINDS.get(kind, kind), f"kind {kind}", "%") for kind in kinds)]
    note = f"last minus first: {gain_text(found.gain)}" if found.gain else ""
    title = joined_title("Held-out tasks", found.split)
    return _by_iteration(title, columns, rows, note=note, shown=lambda row: True)


EVALUATED: tuple[Column, ...] = (("episodes", "episodes", 0), ("success", "success", "%"))
EVALUATED += (("95% interval", "success", "interval"), ("steps", "mean_steps", 1))
# ALFRED's names of task types, in one word each.
KINDS = {
    "pick_and_place_simple": "place",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "pick_two_obj_and_place": "two",
    "look_at_obj_in_light": "look",
}


def _probe(summary: RunSummary) -> Table:
    """One line per evaluation that measured the reward model on the frozen probe."""
    gain = f"; balanced, last minus first: {gain_text(summary.probe_gain)}" if summary.probe_gain else ""
    return _by_iteration(
        "Reward model on the frozen probe",
        (
            *(("votes", "probe_votes", 0), ("balanced", "probe_balanced", "%")),
            *(("95% interval", "probe_balanced", "interval"), ("on good", "probe_good", "%")),
            *(("on bad", "probe_bad", "%"), ("mu", "probe_mu", 2), ("95% interval", "probe_mu", "range")),
        ),
        summary.evaluations,
        shown=lambda row: row.get("probe_balanced") is not None,
        note="one fixed set of steps of scripted players on held-out tasks; balanced: the mean of the shares of good "
        f"and of bad steps that are judged right; intervals over tasks{gain}",
    )


EDIT_COUNTS = ("proposed", "tried", "valid", "measured", "accepted")


def _adaptation(summary: RunSummary) -> Iterator[Table]:
    """What became of proposed tasks per iteration and per kind of edit."""
    yield _by_iteration(
        "Adaptation",
        (
            *(("judged", "pending", 0), ("harder", "accepted_harder", 0), ("easier", "accepted_easier", 0)),
            *(("returned", "returned", 0), ("accepted so far", "accepted_total", 0)),
            *(("slots changed", "adapted_slots", 0), ("asked", "tasks_chosen", 0)),
            ("depth", "pool_depth_mean", 3),
            *(("expert", "expert_success", "%"), ("on parents", "parent_expert_success", "%")),
            ("on roots", "root_expert_success", "%"),
        ),
        summary.iterations,
        shown=lambda row: row.get("tasks_chosen") or row.get("pending") or row.get("returned"),
        note="judged: tasks that the iteration before proposed; harder, easier: accepted; depth: edits from the root, "
        "mean of the pool; expert: success of a policy that sees observations only and does not learn, on the accepted "
        "tasks, their parents and their roots",
    )
    yield Table(
        title="Edits",
        columns=("direction", "kind", *EDIT_COUNTS),
        rows=tuple(
            (direction, kind, *(str(counts.get(name, 0)) for name in EDIT_COUNTS))
            for direction, kinds in edit_counts(summary).items()
            for kind, counts in kinds.items()
        ),
        note="over all iterations; of the proposals for a task, those after the first valid one are not tried; "
        "measured: played as pending tasks",
    )


def edit_counts(summary: RunSummary) -> Tally:
    """direction -> kind of edit -> counts, over all iterations."""
    rows = summary.iterations
    return added([row[key] for row in rows for key in ("tasks_by_edit", "by_edit") if row.get(key)])


def _limits(summary: RunSummary) -> Table:
    """How much met a limit or failed."""
    columns: list[Column] = [
        *(("episodes", "rollout_episodes", 0), ("context full", "rollout_context_stops", 0)),
        *(("env errors", "rollout_env_errors", 0), ("replies", "rollout_steps", 0), ("cut", "rollout_truncated", 0)),
        *(("no action", "rollout_invalid_actions", 0), ("steps judged", "judged_steps", 0)),
        *(("prompt too long", "judged_skipped", 0), ("judgements", "judged_judgements", 0)),
        *(("cut", "judged_truncated", 0), ("unparsable", "judged_unparsable", 0), ("no reply", "judged_failed", 0)),
    ]
    for model, replies in (("policy", "steps"), ("rm", "judgements")):
        columns += [(f"{replies} not trained", f"{model}_replies_too_long", 0)]
        columns += [("updates skipped", f"{model}_skipped_updates", 0)]
    note = (
        "context full: the next prompt would not have fitted; cut: by max_tokens; cut or unreadable judgements are not "
        "votes; no reply: the chat server gave none; not trained: ends beyond max_tokens of train_policy or train_rm; "
        "skipped: the gradient was not finite"
    )
    return _by_iteration("Limits", columns, summary.iterations, note=note)


def _warnings(summary: RunSummary) -> Table:
    first: Mapping[str, Any] = summary.iterations[0] if summary.iterations else {}
    rows = tuple(
        (str(one.iteration), one.guard, one.said, one.remedy)
        for row in summary.iterations
        for one in warned(row, first, summary.config)
    )
    return Table(title="Warnings", columns=("iteration", "warning", "what was seen", "remedy"), rows=rows)


def _seconds(summary: RunSummary) -> Table:
    """Seconds of each stage of the loop per iteration; stages outside of the loop are in the note."""
    rows = []
    for iteration in [row["iteration"] for row in summary.iterations]:
        seconds = [summary.seconds.get((iteration, stage)) for stage in LOOP]
        total = sum(value for value in seconds if value is not None)
        rows.append((str(iteration), *(number(value, 1) for value in seconds), number(total, 1)))
    outside: dict[str, float] = {}
    for (_, stage), value in summary.seconds.items():
        if stage not in (*LOOP, "report"):
            outside[stage] = outside.get(stage, 0.0) + value
    spent = ", ".join(f"{name} {value:.1f}" for name, value in outside.items() if value)
    note = f"outside of the loop: {spent}" if spent else ""
    return Table(title="Seconds", columns=("iteration", *LOOP, "sum"), rows=tuple(rows), note=note)


def parameters_tables(run: Path) -> list[Table]:
    """One table; none for a run without a `config.yaml`. Raises UserError if the file is damaged."""
    if not run_config_path(run).exists():
        return []
    recorded = read_run_config(run)
    rows = [
        (shown_key(key), shown_value(value), ABSENT if default is NOT_THERE else shown_value(default))
        for key, (default, value) in parameter_differences(resolved(default_config(recorded)), recorded).items()
        if value is not NOT_THERE
    ]
    return [
        Table(
            title="Parameters that differ from the default",
            columns=("parameter", "value", "default"),
            rows=tuple(rows),
            note=f"{run_config_path(run)} has all parameters; each manifest has the parameters of its stage.",
            listing=True,
        )
    ]


def gain_text(gain: Interval) -> str:
    """`+21.4 points, 95% interval +15.0 to +27.8`."""
    points = [100 * value for value in (gain.estimate, gain.low, gain.high)]
    return f"{points[0]:+.1f} points, 95% interval {points[1]:+.1f} to {points[2]:+.1f}"


def headline(summary: RunSummary) -> list[str]:
    """The first and last lines of every form of the report: success on every held-out split, the judge on its probe,
    the reward model, the tasks and the time. Empty before anything is done.
    """
    lines = [*_since_untrained(summary)]
    lines += [line for found in titled_splits(summary) for line in _success_line(found)]
    probed = [row["probe_balanced"] for row in summary.evaluations if row.get("probe_balanced") is not None]
    if summary.probe_gain:
        ends = f"{percent(probed[0])} to {percent(probed[-1])}"
        lines.append(f"judge on the frozen probe {ends}: {gain_text(summary.probe_gain)}")
    others = [*_first_to_last(summary, "mu", "mu", 2)]
    others += _first_to_last(summary, "rm_process_balanced", "judge right about steps", "%")
    accepted = [row["accepted_total"] for row in summary.iterations if row.get("accepted_total") is not None]
    others += [f"{number(accepted[-1], 0)} changed tasks accepted"] if accepted else []
    seconds = sum(summary.seconds.values())
    others += [f"{duration(seconds)} of stages"] if seconds else []
    return [*lines, "; ".join(others)] if others else lines


def _since_untrained(summary: RunSummary) -> Iterator[str]:
    """`held-out success 0.0% untrained to 21.9% at iteration 3: ...`, if the model had a warm start."""
    before, rows = summary.run / UNTRAINED, [row for row in summary.evaluations if row.get("success") is not None]
    if not (rows and (before / "metrics.json").exists()):
        return
    after = artifact(summary.run, "eval_trajectories", rows[-1]["iteration"])
    if (gain := gain_between(before / "trajectories", after)) is not None:
        ends = [percent(row["success"]) for row in (read_json(before / "metrics.json"), rows[-1])]
        at = f"at iteration {rows[-1]['iteration']}"
        yield f"held-out success {ends[0]} untrained to {ends[1]} {at}: {gain_text(gain)}"


def _success_line(found: HeldOut) -> Iterator[str]:
    """`held-out success 29.4% to 48.7% in 12 iterations: +19.3 points, 95% interval +12.5 to +26.1`."""
    rows = [row for row in found.evaluations if row.get("success") is not None]
    if not rows:
        return
    name = f"held-out success on {found.split}" if found.split else "held-out success"
    if found.gain is None:
        yield f"{name} {percent(rows[-1]['success'])} at iteration {rows[-1]['iteration']}"
        return
    count = rows[-1]["iteration"] - rows[0]["iteration"]
    span = f"{percent(rows[0]['success'])} to {percent(rows[-1]['success'])} in {counted(count, 'iteration')}"
    yield f"{name} {span}: {gain_text(found.gain)}"


def _first_to_last(summary: RunSummary, key: str, name: str, form: str | int) -> list[str]:
    """`mu 1.12 to 1.07`; empty if no iteration has the key."""
    known = [row for row in summary.iterations if row.get(key) is not None]
    ends = dict.fromkeys(_cell(row, key, form) for row in known[:1] + known[-1:])
    return [f"{name} {' to '.join(ends)}"] if ends else []
