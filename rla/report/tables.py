"""The tables of a report, as plain text cells: built once, drawn for the terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rla.metrics.guards import warned
from rla.metrics.intervals import Interval
from rla.report.collect import HeldOut, RunSummary, artifact_places, titled_splits

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


def tables(summary: RunSummary, *, after_evaluation: Sequence[Table] = ()) -> list[Table]:
    """Warnings, training, reward model, difficulty, evaluation, what else is to be shown, limits, time, and places."""
    made = [
        warnings_table(summary),
        training(summary),
        reward_model(summary),
        against_fact(summary),
        difficulty_table(summary),
    ]
    made += [
        *map(evaluation, titled_splits(summary)),
        *after_evaluation,
        limits_table(summary),
        times(summary),
        locations(summary),
    ]
    return [table for table in made if table.rows]


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
    """`PLAYED` of an evaluation, whose `episodes` are those that count. Before `steps` was there it was all of them."""
    if "steps" in row:
        return [{**row, "episodes": row["episodes"] + row["env_errors"]}.get(key) for key in PLAYED]
    return [{**row, "steps": round(row["mean_steps"] * row["episodes"])}.get(key) for key in PLAYED]


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
