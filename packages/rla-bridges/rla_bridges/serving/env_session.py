"""One session of the server: an environment, and the answers to messages about it.

An episode ends as in a rollout: the environment ends it, it is won, or it has had `env.max_steps` steps. The reward of
a step is the increase of the episode's reward. If an environment gives no rewards, the winning step earns 1.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from rla.config import Config
from rla.envs.observation import (
    AwaitedEnvironment,
    Environment,
    EnvironmentFailure,
    Observation,
    offered,
    settled,
)
from rla.envs.pool import MakeEnv
from rla.errors import UserError
from rla.store.records import Task
from rla_bridges.serving.openenv_messages import BadMessage, Data, action_of, name_at, observation_message
from rla_bridges.serving.served_tasks import ServedTasks

log = logging.getLogger(__name__)

SHOWN = 300  # characters of an environment's failure that are sent to a client
FAILED = "EXECUTION_ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedEnv:
    """State shared by all sessions. `turns` numbers the resets that do not name a task."""

    config: Config
    tasks: ServedTasks
    make: MakeEnv
    turns: Iterator[int] = field(default_factory=count)

    @property
    def name(self) -> str:
        """The environment's name."""
        return next(iter(self.tasks.by_id.values())).env


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeState:
    """An episode between two messages; `earned` is the sum of its rewards so far."""

    task: Task
    episode_id: str
    steps: int = 0
    earned: float = 0.0
    counts: bool = False  # whether the environment has given a reward
    won: bool = False
    done: bool = False

    def data(self) -> Mapping[str, Any]:
        """The answer to `state`."""
        return {
            "episode_id": self.episode_id,
            "step_count": self.steps,
            "return": self.earned,
            "won": self.won,
            "done": self.done,
            "task_id": self.task.task_id,
            "split": self.task.split,
            "kind": self.task.kind,
            "instruction": self.task.instruction,
            "environment": self.task.env,
        }


class EnvSession:
    """`answer` handles one message at a time."""

    def __init__(self, served: ServedEnv) -> None:
        self._served = served
        self._environment: Environment | AwaitedEnvironment | None = None
        self._state: EpisodeState | None = None

    async def answer(self, kind: str, data: Data) -> Data:
        """The answer to a reset, a step or a question about the state. Raises BadMessage."""
        if kind == "state":
            return {
                "type": "state",
                "data": self._state.data() if self._state else {"episode_id": None, "step_count": 0},
            }
        try:
            return await (self._reset(data) if kind == "reset" else self._step(data))
        except EnvironmentFailure as failure:
            self.close()
            raise BadMessage(FAILED, f"the environment failed: {failure}"[:SHOWN]) from None
        except UserError as error:
            self.close()
            log.warning("an episode could not be made: %s", error)
            raise BadMessage(FAILED, "the environment cannot be made here; the server's log says why") from None

    async def _reset(self, data: Data) -> Data:
        task, episode_id = self._served.tasks.chosen(data, turns=self._served.turns), name_at(data, "episode_id")
        self.close()
        self._environment = self._served.make(task)
        seen = await settled(self._environment.reset())
        self._state = EpisodeState(task=task, episode_id=episode_id or task.task_id)
        return self._told(self._state, seen)

    async def _step(self, data: Data) -> Data:
        action = action_of(data)
        if self._environment is None or self._state is None:
            over = self._state is not None and self._state.done
            raise BadMessage(
                FAILED, "the episode is over; send a reset" if over else "there is no episode; send a reset"
            )
        seen = await settled(self._environment.step(action))
        return self._told(replace(self._state, steps=self._state.steps + 1), seen)

    def _told(self, state: EpisodeState, seen: Observation) -> Data:
        env = self._served.config.env
        won = seen.success(env.reward_threshold)
        counts = state.counts or seen.reward is not None
        earned = (state.earned if counts else float(won)) if seen.reward is None else float(seen.reward)
        if not math.isfinite(earned):
            raise EnvironmentFailure("its reward is not a finite number")
        done = won or seen.done or state.steps >= env.max_steps
        reward = None if state.steps == 0 and earned == 0 else earned - state.earned
        if reward is not None and not math.isfinite(reward):  # the sum of two finite numbers may overflow
            raise EnvironmentFailure("its reward is not a finite number")
        self._state = replace(state, earned=earned, counts=counts, won=won, done=done)
        if done:
            self._end()  # so that a pool's worker is free for the next episode
        shown = replace(seen, commands=offered(seen.commands, env.omit_commands))
        return observation_message(shown, task_id=state.task.task_id, reward=reward, won=won, done=done)

    def _end(self) -> None:
        if self._environment is not None:
            self._environment.close()
            self._environment = None

    def close(self) -> None:
        """End the episode, if there is one."""
        self._end()
        self._state = None
