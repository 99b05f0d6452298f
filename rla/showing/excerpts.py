"""Which steps and episodes `rla show` and the report print.

    worst      steps on which most votes contradict the label, the largest policy advantage first
    best       the same of the steps on which every vote is right
    disputed   steps with split votes, the most evenly split first
    flipped    tasks that were won and are lost later

Fact is the label of the environment's solver. Votes that could not be read do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from rla.config import Config
from rla.envs.protocols import Labels
from rla.envs.registry import environment
from rla.errors import UserError
from rla.rollouts.labels import LABELS, labels_in
from rla.showing.episodes import PAID, Excerpt, Played, ShownEpisode, episode_frame, read_episodes_whole
from rla.store.frames import read_judgements
from rla.store.reading import read_table
from rla.store.record import is_complete

Choice = Literal["worst", "best", "disputed"]
STEP = ("trajectory_id", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A step, and why."""

    trajectory_id: str
    step: int
    why: str


def step_table(votes: pl.DataFrame, *, labels: pl.DataFrame, paid: pl.DataFrame) -> pl.DataFrame:
    """One row for each step with a valid vote: trajectory_id, step, votes, mean (of the votes), label, advantage.

    `votes`: trajectory_id, step, score (+1, -1, null). `labels`: trajectory_id, step, label; `paid`: trajectory_id,
    step, advantage. Unknown values are null.
    """
    return (
        votes.drop_nulls("score")
        .group_by(*STEP)
        .agg(votes=pl.len(), mean=pl.col("score").cast(pl.Float64).mean())
        .join(labels.select(*STEP, "label"), on=STEP, how="left")
        .join(paid.select(*STEP, "advantage"), on=STEP, how="left")
    )


def choose_steps(table: pl.DataFrame, choice: Choice, count: int) -> list[Chosen]:
    """At most `count` steps of a `step_table`. Equal ones are in order of episode and step."""
    weight = pl.col("advantage").abs().fill_null(0.0)
    wrong = (1 - pl.col("mean") * pl.col("label")) / 2  # share of the votes that are against fact
    match choice:
        case "worst":
            known = table.drop_nulls("label").with_columns(rank=wrong).filter(pl.col("rank") > 0)
            best = known.sort(-pl.col("rank"), -weight, *STEP)
        case "best":
            known = table.drop_nulls("label").with_columns(rank=wrong).filter(pl.col("rank") == 0)
            best = known.sort(-pl.col("votes").cast(pl.Int64), -weight, *STEP)
        case "disputed":
            split = table.filter(pl.col("mean").abs() < 1)
            best = split.sort(pl.col("mean").abs(), -weight, *STEP)
    return [
        Chosen(trajectory_id=row["trajectory_id"], step=row["step"], why=reason(row, choice))
        for row in best.head(count).iter_rows(named=True)
    ]


def reason(row: dict[str, float], choice: Choice) -> str:
    """One line on a row of a `step_table`."""
    votes = int(row["votes"])
    good = round((1 + row["mean"]) / 2 * votes)
    said = f"{good} of {votes} votes call the step good"
    if choice == "disputed":
        return said
    return f"{said}, and it {'helped' if row['label'] > 0 else 'did not help'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flipped:
    """A task, the share of its episodes that were won before and after, an episode that was won before and one that was
    lost after.
    """

    task_id: str
    before: float
    after: float
    won: str
    lost: str


def flipped_tasks(before: pl.DataFrame, after: pl.DataFrame) -> list[Flipped]:
    """The tasks of both whose share of won episodes fell. Both: trajectory_id, task_id, rollout, outcome (+1, -1)."""
    sides = []
    for frame, sign, name in ((before, 1, "won"), (after, -1, "lost")):
        example = pl.col("trajectory_id").filter(pl.col("outcome") == sign).first()
        share = (pl.col("outcome") > 0).mean()
        ordered = frame.sort("rollout", "trajectory_id").group_by("task_id")
        sides.append(ordered.agg(share.alias(f"{name}_share"), example.alias(name)))
    both = sides[0].join(sides[1], on="task_id").drop_nulls()
    return [
        Flipped(
            task_id=row["task_id"], before=row["won_share"], after=row["lost_share"], won=row["won"], lost=row["lost"]
        )
        for row in both.filter(pl.col("won_share") > pl.col("lost_share")).iter_rows(named=True)
    ]


NamedBy = Literal["trajectory_id", "task_id"]
AROUND = 1  # steps before a chosen one that are shown with it


def chosen_excerpts(played: Played, config: Config, choice: Choice, count: int) -> list[Excerpt]:
    """The steps of a choice, in its order. Raises UserError if there is nothing to choose from."""
    if not is_complete(played.scores):
        raise UserError(f"{played.scores}: no votes to choose by; call `rla score-steps` first")
    labels = None
    if choice != "disputed":
        if not isinstance(environment(config.env.name), Labels):
            raise UserError(
                f"--{choice}: the environment {config.env.name} does not say which steps helped; --disputed needs the "
                "votes alone"
            )
        labels = labels_in(played.trajectories, played.pools, config).frame
    paid = pl.DataFrame(schema={"trajectory_id": pl.String, "step": pl.Int32, "advantage": pl.Float64})
    if is_complete(played.policy_rewards):
        paid = pl.DataFrame(pl.from_arrow(read_table(played.policy_rewards, "policy_rewards", list(PAID))))
    known = pl.DataFrame(schema=LABELS) if labels is None else labels
    # Some judgements belong to no episode, such as those of reference programs.
    votes = read_judgements(played.scores).join(episode_frame(played), on="trajectory_id", how="semi")
    found = choose_steps(step_table(votes, labels=known, paid=paid), choice, count)
    return step_excerpts(played, config, found, labels=labels)


def step_excerpts(
    played: Played, config: Config, chosen: Sequence[Chosen], *, labels: pl.DataFrame | None
) -> list[Excerpt]:
    """Each chosen step with the one before it. Steps of one episode are shown together, in the place of the first."""
    grouped: dict[str, list[Chosen]] = {}
    for one in chosen:
        grouped.setdefault(one.trajectory_id, []).append(one)
    episodes = read_episodes_whole(played, grouped, config, labels=labels)
    return [
        Excerpt(
            episode=episodes[name],
            steps=sorted({step for one in steps for step in range(max(0, one.step - AROUND), one.step + 1)}),
            why="\n".join(f"step {one.step}: {one.why}" for one in sorted(steps, key=lambda one: one.step)),
        )
        for name, steps in grouped.items()
    ]


def flipped_excerpts(before: Played, later: Iterable[Played], config: Config, count: int) -> list[Excerpt]:
    """Two episodes for each task that was won less often when it was played again: a win, then a loss.

    `later`: the iterations after `before`, in order.
    """
    first = episode_frame(before)
    missing = set(first["task_id"])
    found: list[tuple[Flipped, Played]] = []
    for after in later:
        if not missing:
            break
        played = episode_frame(after).filter(pl.col("task_id").is_in(missing))
        missing -= set(played["task_id"])
        found += [(one, after) for one in flipped_tasks(first, played)]
    worst = sorted(found, key=lambda pair: (pair[0].after - pair[0].before, pair[0].task_id))[:count]
    won = read_episodes_whole(before, {one.won for one, _ in worst}, config)
    lost: dict[str, ShownEpisode] = {}
    for after in dict.fromkeys(after for _, after in worst):
        lost |= read_episodes_whole(after, {one.lost for one, place in worst if place == after}, config)
    return [excerpt for one, _ in worst for excerpt in _both(one, won[one.won], lost[one.lost])]


def _both(one: Flipped, won: ShownEpisode, lost: ShownEpisode) -> tuple[Excerpt, Excerpt]:
    said = (
        f"task {one.task_id}: {one.before:.0%} of its episodes won in iteration {won.iteration}, {one.after:.0%} in "
        f"{lost.iteration}"
    )
    return Excerpt(episode=won, why=said), Excerpt(episode=lost, why=said)


def named_excerpts(played: Played, config: Config, column: NamedBy, beginning: str) -> list[Excerpt]:
    """One episode, or all of a task, by the beginning of its id. Raises UserError unless exactly one id matches."""
    table = episode_frame(played)
    ids = sorted({name for name in table[column] if name.startswith(beginning)})
    if len(ids) != 1:
        found = f"{', '.join(ids[:4])} begin so" if ids else "there is none"
        raise UserError(f"{played.trajectories}: {column} {beginning}: {found}; `rla show` alone lists the tasks")
    rows = table.filter(pl.col(column) == ids[0]).sort("rollout", "trajectory_id")
    whole = read_episodes_whole(played, set(rows["trajectory_id"]), config)
    return [Excerpt(episode=whole[name]) for name in rows["trajectory_id"]]
