"""The page and the text of a run from its shards: headline, figures, curves, what is worth a look, and the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import polars as pl

from rla.config import Config
from rla.envs.protocols import Labels
from rla.envs.registry import environment
from rla.metrics.custom import brought
from rla.pipeline.plan import Plan
from rla.report.collect import HeldOut, RunSummary, gain_between, titled_splits
from rla.report.render import Section, as_text, curves_section, excerpts_section, report_page, tables_section
from rla.report.series import panels
from rla.report.tables import (
    Table,
    adaptation_tables,
    against_fact,
    difficulty_table,
    evaluation,
    gain_line,
    kind_tables,
    limits_table,
    locations,
    number,
    parameters_tables,
    percent,
    probe_line,
    probe_table,
    reward_model,
    times,
    training,
    warnings_table,
)
from rla.showing.episodes import Played, episode_frame, played_in, played_iterations
from rla.showing.excerpts import Choice, chosen_excerpts
from rla.store.frames import read_judgements
from rla.store.layout import UNTRAINED, artifact
from rla.store.record import is_complete, read_json
from rla.store.texts import duration

STEPS = 6  # shown of each kind
Passed = Callable[[str, list[str]], None]


@runtime_checkable
class Tabulates(Protocol):
    """A member of classes that packages bring (`rla.metrics.custom`)."""

    def tables(self, summary: RunSummary) -> Sequence[Table]:
        """Tables of a report; those without rows are left out."""
        ...


@runtime_checkable
class Illustrates(Protocol):
    """Another such member."""

    def sections(self, summary: RunSummary) -> Sequence[Section]:
        """Sections of `report.html`; those without a body are left out."""
        ...


@runtime_checkable
class Accompanies(Protocol):
    """Another such member."""

    def accompany(self, plan: Plan, run: Path, config: Config, say: Callable[[str], None]) -> Passed:
        """Called before `rla run` begins with a plan, as it was asked for. What it returns is called with each stage
        that has run, such as `rollout@3`, and those that follow it; with an empty name once the report is printed.
        """
        ...


def tables_of_run(summary: RunSummary) -> list[Table]:
    """Warnings, training, reward model, difficulty, evaluation, tables of packages, adaptation, parameters, limits,
    time, and places; those without rows are left out. Raises UserError for a damaged `config.yaml`.
    """
    made = [
        warnings_table(summary),
        training(summary),
        reward_model(summary),
        against_fact(summary),
        difficulty_table(summary),
        *map(evaluation, titled_splits(summary)),
        *kind_tables(summary),
        probe_table(summary),
        *(table for one in brought(Tabulates) for table in one.tables(summary)),
        *adaptation_tables(summary),
        *parameters_tables(summary.run),
        limits_table(summary),
        times(summary),
        locations(summary),
    ]
    return [table for table in made if table.rows]


def text_of_run(summary: RunSummary, made: Sequence[Table], *, width: int) -> str:
    """All tables but listings, which the page has; the headline first and last."""
    head, made = headline(summary), [table for table in made if not table.listing]
    return "\n".join([*head, "", as_text(f"Run {summary.run}", made, width=width), *head])


def page_of_run(summary: RunSummary, made: Sequence[Table], config: Config) -> str:
    """`report.html`. A run that has just begun has few sections."""
    sections = [
        curves_section(panels(summary)),
        *steps_sections(summary, config),
        *(section for one in brought(Illustrates) for section in one.sections(summary)),
        tables_section(made),
    ]
    return report_page(f"Run {summary.run}", headline(summary), sections)


def steps_sections(summary: RunSummary, config: Config) -> list[Section]:
    """Steps of the last iteration that was judged: those the judge is most wrong about, and the most disputed."""
    judged = [i for i in played_iterations(summary.run, config) if is_complete(artifact(summary.run, "scores", i))]
    if not judged:
        return []
    played = played_in(summary.run, judged[-1])
    chosen: list[tuple[Choice, str]] = [("disputed", "Most disputed")]
    if isinstance(environment(config.env.name), Labels):
        chosen.insert(0, ("worst", "Worst judged"))
    return [
        excerpts_section(
            choice, f"{title} steps of iteration {judged[-1]}", chosen_excerpts(played, config, choice, STEPS)
        )
        for choice, title in chosen
    ]


def headline(summary: RunSummary) -> list[str]:
    """A run in a few lines, which stand first and last in every form of the report: success on every held-out split;
    then the judge on its probe, the reward model, the tasks and the time.

    Empty before anything is done.
    """
    lines = [line for found in titled_splits(summary) for line in success_line(found)]
    others = "; ".join(other_figures(summary))
    return [*since_untrained(summary), *lines, *probe_line(summary), *([others] if others else [])]


def since_untrained(summary: RunSummary) -> Iterator[str]:
    """`held-out success 0.0% untrained to 21.9% at iteration 3: ...` of a model that had a warm start."""
    before, rows = summary.run / UNTRAINED, [row for row in summary.evaluations if row.get("success") is not None]
    if not (rows and (before / "metrics.json").exists()):
        return
    after = artifact(summary.run, "eval_trajectories", rows[-1]["iteration"])
    if (gain := gain_between(before / "trajectories", after)) is not None:
        ends = [percent(row["success"]) for row in (read_json(before / "metrics.json"), rows[-1])]
        yield gain_line(f"held-out success {ends[0]} untrained to {ends[1]} at iteration {rows[-1]['iteration']}", gain)


def success_line(found: HeldOut) -> Iterator[str]:
    """`held-out success 29.4% to 48.7% in 12 iterations: +19.3 points, 95% interval +12.5 to +26.1`."""
    rows = [row for row in found.evaluations if row.get("success") is not None]
    if not rows:
        return
    name = f"held-out success on {found.split}" if found.split else "held-out success"
    if found.gain is None:
        yield f"{name} {percent(rows[-1]['success'])} at iteration {rows[-1]['iteration']}"
        return
    count = rows[-1]["iteration"] - rows[0]["iteration"]
    span = f"{percent(rows[0]['success'])} to {percent(rows[-1]['success'])} in {count} iteration{'s' * (count != 1)}"
    yield gain_line(f"{name} {span}", found.gain)


def other_figures(summary: RunSummary) -> Iterator[str]:
    yield from first_to_last(summary, "mu", "mu", 2)
    yield from first_to_last(summary, "rm_process_balanced", "judge right about steps", None)
    accepted = [row["accepted_total"] for row in summary.iterations if row.get("accepted_total") is not None]
    if accepted:
        yield f"{number(accepted[-1], 0)} changed tasks accepted"
    seconds = sum(summary.seconds.values())
    if seconds:
        yield f"{duration(seconds)} of stages"


def first_to_last(summary: RunSummary, key: str, name: str, digits: int | None) -> Iterator[str]:
    """`mu 1.12 to 1.07`; digits None: in per cent."""
    known: list[Mapping[str, Any]] = [row for row in summary.iterations if row.get(key) is not None]
    if known:
        ends = [percent(row[key]) if digits is None else number(row[key], digits) for row in (known[0], known[-1])]
        yield f"{name} {' to '.join(dict.fromkeys(ends))}"


def played_table(played: Played) -> Table:
    """By task: how many of its episodes were won, the mean vote, and an episode to begin with."""
    episodes = episode_frame(played)
    votes = pl.DataFrame(schema={"task_id": pl.String, "mean": pl.Float64})
    if is_complete(played.scores):
        scored = read_judgements(played.scores).drop_nulls("score")
        votes = scored.group_by("task_id").agg(mean=pl.col("score").cast(pl.Float64).mean())
    tasks = (
        episodes.sort("rollout", "trajectory_id")
        .group_by("task_id", maintain_order=True)
        .agg(
            pl.col("kind", "status", "instruction").first(),
            won=(pl.col("outcome") > 0).mean(),
            episodes=pl.len(),
            first=pl.col("trajectory_id").first(),
        )
        .join(votes, on="task_id", how="left")
        .sort("kind", "task_id")
    )
    rows = tuple(
        (
            row["task_id"],
            row["kind"],
            row["status"],
            percent(row["won"]),
            str(row["episodes"]),
            number(row["mean"], 2),
            row["instruction"].splitlines()[0] if row["instruction"] else "",
            row["first"],
        )
        for row in tasks.iter_rows(named=True)
    )
    columns = ("task", "kind", "status", "won, %", "episodes", "mean vote", "instruction", "first episode")
    note = "--task ID or --episode ID shows all steps; --worst, --best, --disputed and --flipped choose some"
    return Table(title="Tasks that were played", columns=columns, rows=rows, note=note)
