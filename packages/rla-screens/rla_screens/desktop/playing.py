"""Scripts played from beginning to end: what proves tasks, demonstrates them and labels steps.

Each call has an event loop and a machine of its own, in a thread that lives as long as the machine.
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
    """`seen[0]` is that of the reset; one more follows each action. `threshold`: the reward that wins."""

    actions: tuple[str, ...]
    seen: tuple[Observation, ...]
    threshold: float

    @property
    def won(self) -> bool:
        return self.seen[-1].success(self.threshold)


async def play_script(service: DesktopService, task: Task, actions: Sequence[str], *, threshold: float) -> PlayedScript:
    """The actions until the episode ends; where they do not end it, it is scored as it stands. `threshold`: of
    `env.reward_threshold`. Raises as episodes.
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
    """What `work` gives, with a service that is closed behind it. May be called where an event loop runs."""

    async def worked() -> Given:
        service = DesktopService(own)
        try:
            return await work(service)
        finally:
            await service.close()

    return in_own_loop(worked)
