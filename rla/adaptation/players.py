"""How an independent policy, the setting's expert, fares on accepted tasks: with their parents and roots, to compare.

The expert sees observations only and learns nothing, so its success moves with the tasks alone, while that of the
policy moves with what it has learnt. It plays the commands that the policy is offered, at most `env.max_steps` of them;
the seeds depend on run, task and episode, not on the iteration: a task that is played again gives the same figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from rla.adaptation.accept import TaskVerdict
from rla.config.sections import EnvConfig
from rla.envs.protocols import Demonstration
from rla.seeds import derive
from rla.store.records import Task


class Player(Protocol):
    """The part of an environment's setting that plays (`rla.envs.protocols.Setting` has it)."""

    def demonstrate(self, task: Task, config: EnvConfig, *, seed: int, random_share: float) -> Demonstration: ...


class Played(NamedTuple):
    """Share of won episodes, and mean number of commands over all of them."""

    success: float
    steps: float


def play(task: Task, player: Player, config: EnvConfig, *, episodes: int, seed: int) -> Played:
    """`episodes` (1 or more) of the expert on `task`."""
    played = [
        player.demonstrate(task, config, seed=derive(seed, "expert", task.task_id, number), random_share=0.0)
        for number in range(episodes)
    ]
    won = sum(demonstration.won for demonstration in played)
    return Played(won / episodes, sum(len(demonstration.actions) for demonstration in played) / episodes)


def with_expert(
    verdicts: Iterable[TaskVerdict],
    tasks: Mapping[str, Task],
    player: Player,
    config: EnvConfig,
    *,
    episodes: int,
    seed: int,
) -> list[TaskVerdict]:
    """`verdicts`, the accepted ones with the expert's figures. `tasks`: task_id -> task, with parents and roots."""
    found: dict[str, Played] = {}

    def figures(task_id: str) -> Played:
        if task_id not in found:
            found[task_id] = play(tasks[task_id], player, config, episodes=episodes, seed=seed)
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
