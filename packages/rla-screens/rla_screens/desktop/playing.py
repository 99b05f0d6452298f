"""Scripts played from beginning to end: they prove tasks, demonstrate them and label steps.

Each call has its own event loop and machine, in a thread that lives as long as the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from rla.envs.observation import Observation
from rla.store.records import Task
from rla_screens.desktop.episode import DesktopService
from rla_screens.desktop.own_loop import Given, in_own_loop
from rla_screens.desktop.params import DesktopParams


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedScript:
    """`seen[0]` is the observation of the reset, followed by one per action. `threshold`: the reward that wins."""

    actions: tuple[str, ...]
    seen: tuple[Observation, ...]
    threshold: float

    @property
    def won(self) -> bool:
        return self.seen[-1].success(self.threshold)


async def play_script(service: DesktopService, task: Task, actions: Sequence[str], *, threshold: float) -> PlayedScript:
    """Play the actions until the episode ends; if they do not end it, the final state is scored. `threshold`:
    `env.reward_threshold`. Raises as episodes do.
    """
    episode = service.make(task)
    try:
        seen, done = [await episode.reset()], list[str]()
        for action in actions:
            if seen[-1].done:
                break
            seen.append(await episode.step(action))
            done.append(action)
        if not seen[-1].done:
            seen[-1] = await episode.stopped()
        return PlayedScript(actions=tuple(done), seen=tuple(seen), threshold=threshold)
    finally:
        await episode.end()


def on_machines(own: DesktopParams, work: Callable[[DesktopService], Coroutine[Any, Any, Given]]) -> Given:
    """The result of `work` with a service that is closed afterwards. May be called inside an event loop."""

    async def worked() -> Given:
        service = DesktopService(own)
        try:
            return await work(service)
        finally:
            await service.close()

    return in_own_loop(worked)
