"""The tables of a report, as plain text cells: built once, drawn for the terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rla.adaptation.edits import Tally, added
from rla.config import resolved
from rla.config.load import Absent, parameter_differences, shown_key, shown_value
from rla.envs.registry import default_config
from rla.metrics.guards import warned
from rla.metrics.intervals import Interval
from rla.report.collect import HeldOut, RunSummary, artifact_places, titled_splits
from rla.store.records import StopReason
from rla.store.run_config import read_run_config, run_config_path

ABSENT = "-"
LOOP = (
    "rollout",
    "score-steps",
    "validate-tasks",
    "compute-rewards",
    "train-policy",
    "train-rm",
    "adapt-env",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`rows` have one cell per column. `listing`: what can be looked up, and is left out of the text of a report."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    listing: bool = False


def training(summary: RunSummary) -> Table:
    """One line per iteration: the policy, the reward model, the tasks."""
    columns: tuple[str, ...] = (
        "iteration",
        "success",
        "95% interval",
        "steps",
        "RM accuracy",
        "mu",
        "proposed",
        "valid",
    )
    columns += ("accepted", "rejected", "KL", "entropy")
    rows = tuple(
        (
            str(row["iteration"]),
            percent(row.get("success")),
            bounds(row),
            number(row.get("mean_steps"), 1),
            percent(row.get("rm_outcome_accuracy")),
            number(row.get("mu"), 2),
            number(row.get("tasks_proposed"), 0),
            number(row.get("tasks_valid"), 0),
            number(row.get("accepted"), 0),
            number(row.get("rejected"), 0),
            number(row.get("policy_approx_kl"), 4),
            number(row.get("policy_entropy"), 3),
        )
        for row in summary.iterations
    )
    note = (
        "success on sampled training tasks; the reward model is useful where mu > 1; KL of the trained policy from the "
        "one that played"
    )
    return Table(title="Training", columns=columns, rows=rows, note=note)


JUDGE = {
    **{"p_plus": "p+", "p_minus": "p-", "mu": "mu", "theorem1_bound": "bound"},
    **{"rm_outcome_accuracy": "outcome", "self_agreement": "itself", "unparsable_votes": "unparsable"},
}
FACT = {
    **{"rm_process_accuracy": "process", "rm_process_low": "95% interval", "rm_process_balanced": "balanced"},
    **{"rm_process_good": "on good", "rm_process_bad": "on bad", "rm_process_majority": "majority"},
    **{"rm_process_won": "won", "rm_process_lost": "lost", "rm_distance_accuracy": "distance"},
    **{"rm_distance_balanced": "balanced", "label_mu": "mu of labels"},
}
RATIOS = {"importance_ratio_median": "ratio, median", "importance_ratio_p90": "90%", "importance_ratio_max": "largest"}
SHARES = {
    **{"one_sided_tasks": "one-sided", "good_steps": "steps that help", "closer_steps": "come nearer"},
    **{"distance_covered": "way covered", "distance_covered_lost": "where lost"},
}


def reward_model(summary: RunSummary) -> Table:
    """One line per iteration that was judged: the votes against outcomes and against each other."""
    rows = tuple(
        (str(row["iteration"]), *(number(row.get(key), 2) if key == "mu" else percent(row.get(key)) for key in JUDGE))
        for row in summary.iterations
        if any(row.get(key) is not None for key in JUDGE)
    )
    note = (
        "p+, p-: votes of +1 where the episode was won, of -1 where it was lost; bound: of Theorem 1; outcome, itself: "
        "agreement with them"
    )
    return Table(title="Reward model", columns=("iteration", *JUDGE.values()), rows=rows, note=note)


def against_fact(summary: RunSummary) -> Table:
    """One line per iteration whose votes could be compared with what the steps did."""
    rows = []
    for row in summary.iterations:
        if row.get("rm_process_accuracy") is not None:
            cells = {key: percent(row.get(key)) for key in FACT}
            cells |= {"rm_process_low": bounds(row, "rm_process"), "label_mu": number(row.get("label_mu"), 2)}
            rows.append((str(row["iteration"]), *cells.values()))
    note = (
        "process: votes that the environment's solver confirms, balanced over good and bad steps, where won and lost; "
        "distance: the same where only coming nearer counts; mu of labels: of a judge without error"
    )
    columns = ("iteration", *FACT.values())
    return Table(title="Reward model against fact", columns=columns, rows=tuple(rows), note=note)


def difficulty_table(summary: RunSummary) -> Table:
    """One line per iteration: importance ratios of the tasks, and how far the policy came."""
    rows = tuple(
        (
            str(row["iteration"]),
            *(number(row.get(key), 2) for key in RATIOS),
            *(percent(row.get(key)) for key in SHARES),
        )
        for row in summary.iterations
        if any(row.get(key) is not None for key in (*RATIOS, *SHARES))
    )
    columns = ("iteration", *RATIOS.values(), *SHARES.values())
    note = "ratio: of tasks that are won and lost; way covered: of the solver's distance, at the nearest point"
    return Table(title="Difficulty", columns=columns, rows=rows, note=note)


def evaluation(found: HeldOut) -> Table:
    """One line per evaluation on the tasks of a held-out split, overall and by kind of task."""
    kinds = sorted({kind for row in found.evaluations for kind in row.get("by_kind", {})})
    rows = tuple(
        (
            str(row["iteration"]),
            number(row.get("episodes"), 0),
            percent(row.get("success")),
            bounds(row),
            number(row.get("mean_steps"), 1),
            *(percent(row.get("by_kind", {}).get(kind, {}).get("success")) for kind in kinds),
        )
        for row in found.evaluations
    )
    columns = ("iteration", "episodes", "success", "95% interval", "steps", *map(short_kind, kinds))
    note = f"last minus first: {gain_text(found.gain)}" if found.gain else ""
    return Table(title=joined_title("Held-out tasks", found.split), columns=columns, rows=rows, note=note)


PLAYED = ("episodes", "context_stops", "env_errors", "steps", "truncated", "invalid_actions")
JUDGED = ("steps", "skipped", "judgements", "truncated", "unparsable", "failed")
TRAINED = tuple(f"{model}_{key}" for model in ("policy", "rm") for key in ("replies_too_long", "skipped_updates"))


def limits_table(summary: RunSummary) -> Table:
    """What met a limit or failed, of how many: one line per iteration, then one per evaluation."""
    keys = (*(f"rollout_{key}" for key in PLAYED), *(f"judged_{key}" for key in JUDGED), *TRAINED)
    rows = [
        (str(row["iteration"]), *(number(row.get(key), 0) for key in keys))
        for row in summary.iterations
        if any(key in row for key in keys)
    ]
    for found in titled_splits(summary):
        for row in found.evaluations:
            if "truncated" in row:
                cells = (number(value, 0) for value in evaluation_limits(row))
                name = joined_title(f"evaluation {row['iteration']}", found.split)
                rows.append((name, *cells, *[ABSENT] * len((*JUDGED, *TRAINED))))
    columns: tuple[str, ...] = ("iteration", "episodes", "context full", "env errors", "replies", "cut", "no action")
    columns += ("steps judged", "prompt too long", "judgements", "cut", "unparsable", "no reply")
    columns += ("steps not trained", "updates skipped", "judgements not trained", "updates skipped")
    note = (
        "context full: the next prompt would not have fitted; cut: by max_tokens; what was cut or unreadable is no "
        "vote; no reply: the chat server gave none; not trained: ends beyond max_tokens of train_policy or train_rm; "
        "skipped: the gradient was not finite"
    )
    return Table(title="Limits", columns=columns, rows=tuple(rows), note=note)


def evaluation_limits(row: Mapping[str, Any]) -> list[float | None]:
    """`PLAYED` of an evaluation, whose `episodes` are those that count."""
    return [{**row, "episodes": row["episodes"] + row["env_errors"]}.get(key) for key in PLAYED]


def warnings_table(summary: RunSummary) -> Table:
    """One line for each warning of an iteration."""
    first: Mapping[str, Any] = summary.iterations[0] if summary.iterations else {}
    rows = tuple(
        (str(one.iteration), one.guard, one.said, one.remedy)
        for row in summary.iterations
        for one in warned(row, first, summary.setting)
    )
    return Table(title="Warnings", columns=("iteration", "warning", "what was seen", "remedy"), rows=rows)


def times(summary: RunSummary) -> Table:
    """Seconds of each stage of the loop per iteration, then what ran outside of the loop."""
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


def locations(summary: RunSummary) -> Table:
    rows = tuple(artifact_places(summary.run))
    return Table(title="Where it lies", columns=("artifact", "folder"), rows=rows, listing=True)


def joined_title(title: str, split: str) -> str:
    return f"{title}, {split}" if split else title


def percent(value: Any) -> str:
    return ABSENT if value is None else f"{100 * float(value):.1f}%"


def number(value: Any, digits: int) -> str:
    return ABSENT if value is None else f"{float(value):.{digits}f}"


def bounds(row: Mapping[str, Any], name: str = "success") -> str:
    """`41.2-58.8%`, or `-` where a bound is unknown."""
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return ABSENT if low is None or high is None else f"{100 * low:.1f}-{100 * high:.1f}%"


class GainLine(str):
    """A line of a headline that ends with a change and its interval, which decides how a page shows the line."""

    gain: Interval

    def __new__(cls, text: str, gain: Interval) -> GainLine:
        line = super().__new__(cls, text)
        line.gain = gain
        return line


def gain_line(said: str, gain: Interval) -> GainLine:
    """`said: +21.4 points, 95% interval +15.0 to +27.8`."""
    return GainLine(f"{said}: {gain_text(gain)}", gain)


def gain_text(gain: Interval) -> str:
    """`+21.4 points, 95% interval +15.0 to +27.8`."""
    points = [100 * value for value in (gain.estimate, gain.low, gain.high)]
    return f"{points[0]:+.1f} points, 95% interval {points[1]:+.1f} to {points[2]:+.1f}"


def short_kind(kind: str) -> str:
    """ALFRED's names of task types, in one word each."""
    names = {
        "pick_and_place_simple": "place",
        "pick_clean_then_place_in_recep": "clean",
        "pick_heat_then_place_in_recep": "heat",
        "pick_cool_then_place_in_recep": "cool",
        "pick_two_obj_and_place": "two",
        "look_at_obj_in_light": "look",
    }
    return names.get(kind, kind)


REASONS = {
    StopReason.WON: "won",
    StopReason.ENDED: "ended",
    StopReason.MAX_STEPS: "max steps",
    StopReason.CONTEXT: "context full",
    StopReason.ENV_ERROR: "env errors",
}
KIND_NOTE = (
    "the last evaluation; a task is one draw; ended: by the environment or the agent, and not won; max steps: of the "
    "episode; env errors count in no other column"
)


def kind_tables(summary: RunSummary) -> list[Table]:
    """For each held-out split one by kind, and one by family where families have several kinds; without rows where
    no evaluation has any.
    """
    tables = []
    for found in titled_splits(summary):
        last = last_evaluation(found)
        tables.append(table_by(found, "kind"))
        if 0 < len(last.get("by_family", {})) < len(last.get("by_kind", {})):
            tables.append(table_by(found, "family"))
    return tables


def table_by(found: HeldOut, part: Literal["kind", "family"]) -> Table:
    """One line per part, then all of them."""
    last = last_evaluation(found)
    rows = [(short_kind(name), *kind_cells(row)) for name, row in last.get(f"by_{part}", {}).items()]
    rows += [("all", *kind_cells(last))] if rows else []
    columns = (part, "episodes", "success", "95% interval", "steps", *REASONS.values())
    return Table(
        title=joined_title(f"Held-out tasks by {part}", found.split), columns=columns, rows=tuple(rows), note=KIND_NOTE
    )


def last_evaluation(found: HeldOut) -> Mapping[str, Any]:
    return found.evaluations[-1] if found.evaluations else {}


def kind_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ended = row.get("stop_reasons") or {}
    return (
        number(row.get("episodes"), 0),
        percent(row.get("success")),
        bounds(row),
        number(row.get("mean_steps"), 1),
        *(number(ended.get(reason), 0) for reason in REASONS),
    )


PROBE_NOTE = (
    "one fixed set of steps of scripted players on held-out tasks; balanced: the mean of the shares of good and of bad "
    "steps that are judged right; intervals over tasks"
)


def probe_table(summary: RunSummary) -> Table:
    """Empty where nothing was measured on a probe."""
    rows = tuple(
        (
            str(row["iteration"]),
            number(row["probe_votes"], 0),
            percent(row["probe_balanced"]),
            bounds(row, "probe_balanced"),
            percent(row["probe_good"]),
            percent(row["probe_bad"]),
            number(row["probe_mu"], 2),
            number_bounds(row, "probe_mu"),
        )
        for row in summary.evaluations
        if row.get("probe_balanced") is not None
    )
    columns = ("iteration", "votes", "balanced", "95% interval", "on good", "on bad", "mu", "95% interval")
    change = summary.probe_change.get("balanced")
    note = f"{PROBE_NOTE}; balanced, last minus first: {gain_text(change)}" if change else PROBE_NOTE
    return Table(title="Reward model on the frozen probe", columns=columns, rows=rows, note=note)


def probe_line(summary: RunSummary) -> Iterator[str]:
    """`judge on the frozen probe 59.7% to 66.1%: +6.4 points, 95% interval +2.0 to +10.8`; nothing without a change."""
    known = [row["probe_balanced"] for row in summary.evaluations if row.get("probe_balanced") is not None]
    if change := summary.probe_change.get("balanced"):
        yield gain_line(f"judge on the frozen probe {percent(known[0])} to {percent(known[-1])}", change)


def number_bounds(row: Mapping[str, Any], name: str) -> str:
    """`1.02 to 1.31`, or `-` where a bound is unknown."""
    ends = [row.get(f"{name}_{end}") for end in ("low", "high")]
    return ABSENT if None in ends else " to ".join(number(end, 2) for end in ends)


DECISIONS: tuple[str, ...] = (
    "pending",
    "accepted_harder",
    "accepted_easier",
    "returned",
    "accepted_total",
    "adapted_slots",
)
DECISIONS += ("tasks_chosen", "tasks_proposed", "tasks_valid")
EDIT_COUNTS = ("proposed", "tried", "valid", "measured", "accepted")
EXPERTS = ("expert", "parent_expert", "root_expert")


def adaptation_tables(summary: RunSummary) -> list[Table]:
    """All of them; one without rows is not shown."""
    return [adaptation_progress(summary), edits_table(summary), expert_table(summary)]


def adaptation_progress(summary: RunSummary) -> Table:
    """One line per iteration in which something was asked for, judged or returned."""
    rows = tuple(
        (
            str(row["iteration"]),
            *(number(row.get(key), 0) for key in DECISIONS),
            number(row.get("pool_depth_mean"), 3),
        )
        for row in summary.iterations
        if row.get("tasks_chosen") or row.get("pending") or row.get("returned")
    )
    columns: tuple[str, ...] = (
        "iteration",
        "judged",
        "harder",
        "easier",
        "returned",
        "accepted so far",
        "slots changed",
    )
    columns += ("asked", "proposed", "valid", "depth")
    note = (
        "judged: those of the iteration before; harder, easier: accepted; depth: edits from the root, mean of the pool"
    )
    return Table(title="Adaptation", columns=columns, rows=rows, note=note)


def edits_table(summary: RunSummary) -> Table:
    """One line per direction and kind of edit, over all iterations."""
    rows = tuple(
        (direction, kind, *(str(counts.get(name, 0)) for name in EDIT_COUNTS))
        for direction, kinds in edit_counts(summary).items()
        for kind, counts in kinds.items()
    )
    note = (
        "over all iterations; of the proposals for a task those after the first valid one are not tried; measured: "
        "played as pending tasks"
    )
    return Table(title="Edits", columns=("direction", "kind", *EDIT_COUNTS), rows=rows, note=note)


def expert_table(summary: RunSummary) -> Table:
    """One line per iteration that accepted tasks: the expert on them, on their parents and on their roots."""
    rows = tuple(
        (
            str(row["iteration"]),
            number(row["accepted"], 0),
            *(percent(row[f"{who}_success"]) for who in EXPERTS),
            *(number(row[f"{who}_steps"], 1) for who in EXPERTS),
        )
        for row in summary.iterations
        if row.get("expert_success") is not None
    )
    columns: tuple[str, ...] = ("iteration", "accepted", "success", "of parents", "of roots")
    columns += ("steps", "of parents", "of roots")
    note = "a policy that sees observations only and does not learn, on the tasks that were accepted"
    return Table(title="Expert on accepted tasks", columns=columns, rows=rows, note=note)


def edit_counts(summary: RunSummary) -> Tally:
    """direction -> kind of edit -> counts, over all iterations."""
    rows = summary.iterations
    return added([row[key] for row in rows for key in ("tasks_by_edit", "by_edit") if row.get(key)])


def parameters_tables(run: Path) -> list[Table]:
    """One table; none for a run without a `config.yaml`. Raises UserError where that is damaged."""
    if not run_config_path(run).exists():
        return []
    recorded = read_run_config(run)
    changed = parameter_differences(resolved(default_config(recorded)), recorded)
    rows = [
        (shown_key(key), shown_value(value), ABSENT if default is Absent.ABSENT else shown_value(default))
        for key, (default, value) in changed.items()
        if value is not Absent.ABSENT
    ]
    note = f"{run_config_path(run)} has all parameters; each manifest has those of its own."
    return [
        Table(
            title="Parameters that differ from the default",
            columns=("parameter", "value", "default"),
            rows=tuple(rows),
            note=note,
            listing=True,
        )
    ]
