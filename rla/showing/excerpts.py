"""From what was asked for to the excerpts that are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import polars as pl

from rla.config import Config
from rla.envs.protocols import Labels
from rla.envs.registry import environment
from rla.errors import UserError
from rla.rollouts.labels import LABELS, labels_in
from rla.showing.choosing import Choice, Chosen, Flipped, choose_steps, flipped_tasks, step_table
from rla.showing.reading import PAID, Played, episode_frame, read_episodes_whole
from rla.showing.records import Excerpt, ShownEpisode
from rla.store.frames import read_judgements
from rla.store.reading import read_table
from rla.store.slices import is_complete

NamedBy = Literal["trajectory_id", "task_id"]
AROUND = 1  # steps before a chosen one that are shown with it


def chosen_excerpts(played: Played, config: Config, choice: Choice, count: int) -> list[Excerpt]:
    """The steps of a choice, the first first. Raises UserError where there is nothing to choose from."""
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
    found = choose_steps(step_table(read_judgements(played.scores), labels=known, paid=paid), choice, count)
    return step_excerpts(played, config, found, labels=labels)


def step_excerpts(
    played: Played, config: Config, chosen: Sequence[Chosen], *, labels: pl.DataFrame | None
) -> list[Excerpt]:
    """Each chosen step with the one before it; those of one episode together, where its first one stands."""
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
    """For each task that was won less often when it was played the next time an episode of each side. `later`: what was
    played after `before`, in order.
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
    """One episode, or all of a task, by how its id begins. Raises UserError where none or several begin so."""
    table = episode_frame(played)
    ids = sorted({name for name in table[column] if name.startswith(beginning)})
    if len(ids) != 1:
        found = f"{', '.join(ids[:4])} begin so" if ids else "there is none"
        raise UserError(f"{played.trajectories}: {column} {beginning}: {found}; `rla show` alone lists the tasks")
    rows = table.filter(pl.col(column) == ids[0]).sort("rollout", "trajectory_id")
    whole = read_episodes_whole(played, set(rows["trajectory_id"]), config)
    return [Excerpt(episode=whole[name]) for name in rows["trajectory_id"]]
