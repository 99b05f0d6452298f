"""How an independent policy, the environment's expert, fares on accepted tasks: with their parents and roots, to
compare.

The expert sees observations only and learns nothing, so its success moves with the tasks alone, while that of the
policy moves with what it has learnt. It plays the commands that the policy is offered, at most `env.max_steps` of them;
the seeds depend on run, task and episode, not on the iteration: a task that is played again gives the same figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from rla.adaptation.accept import TaskVerdict
from rla.config import Config
from rla.envs.protocols import HasExpert
from rla.seeds import derive
from rla.store.records import Task


class ExpertFigures(NamedTuple):
    """Share of won episodes, and mean number of commands over all of them."""

    success: float
    steps: float


def expert_figures(task: Task, player: HasExpert, config: Config, *, episodes: int) -> ExpertFigures:
    """`episodes` (1 or more) of the expert on `task`."""
    played = [
        player.play_expert(task, config, seed=derive(config.seed, "expert", task.task_id, number))
        for number in range(episodes)
    ]
    won = sum(demonstration.won for demonstration in played)
    return ExpertFigures(won / episodes, sum(len(demonstration.actions) for demonstration in played) / episodes)


def with_expert(
    verdicts: Iterable[TaskVerdict], tasks: Mapping[str, Task], player: HasExpert, config: Config
) -> list[TaskVerdict]:
    """`verdicts`, the accepted ones with the figures of `adaptation.expert_episodes` episodes.

    `tasks`: task_id -> task, with parents and roots.
    """
    episodes = config.adaptation.expert_episodes
    found: dict[str, ExpertFigures] = {}

    def figures(task_id: str) -> ExpertFigures:
        if task_id not in found:
            found[task_id] = expert_figures(tasks[task_id], player, config, episodes=episodes)
        return found[task_id]

    return [
        replace(
            verdict,
            expert_success=figures(verdict.task_id).success,
            expert_steps=figures(verdict.task_id).steps,
            parent_expert_success=figures(verdict.parent_id).success,
            parent_expert_steps=figures(verdict.parent_id).steps,
            root_expert_success=figures(verdict.slot).success,
            root_expert_steps=figures(verdict.slot).steps,
        )
        if verdict.accepted and episodes
        else verdict
        for verdict in verdicts
    ]
