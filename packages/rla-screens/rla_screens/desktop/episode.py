"""An episode on a machine of its own: `AwaitedEnvironment`. The verifier looks once, when the episode ends.

An episode ends when the agent says so (`done`, `fail`) or when it has taken its last step. Running out of steps does
not count as `fail`: the state so far is scored, and an infeasible task is won only by an agent that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rla.envs.observation import EnvironmentFailure, Observation
from rla.store.records import Task
from rla_screens.desktop.client import GuestClient, GuestRefusal
from rla_screens.desktop.machine_pool import MachinePool
from rla_screens.desktop.machines import DesktopMachine, MachineLost
from rla_screens.desktop.official import OfficialMetrics
from rla_screens.desktop.params import DesktopParams, DesktopSuccess
from rla_screens.desktop.scenarios import Scenario, ScenarioError, scenario_of
from rla_screens.desktop.setting_up import SetupFailure, set_up
from rla_screens.desktop.verifying import NotScored, StateVerifier, unplayable_reason
from rla_screens.screens.deeds import Motion, Point, ScreenDeed, pixel_of
from rla_screens.screens.forms import deed_of_action

UNREADABLE = "Nothing happens: that is no action."
SCREEN = "The screen."


def guest_deed(deed: ScreenDeed, size: tuple[int, int]) -> dict[str, Any]:
    """A deed in the pixels of a screen, as `guest/hands.py` reads it."""

    def place(point: Point | None) -> list[int] | None:
        return None if point is None else list(pixel_of(point, *size))

    given: dict[str, Any] = {
        "motion": deed.motion.value,
        "at": place(deed.at),
        "button": deed.button,
        "count": deed.count,
    }
    given |= {"to": place(deed.to), "text": deed.text, "keys": list(deed.keys)}
    return given | {"right": deed.right, "down": deed.down, "wait": deed.wait}


def _score_wins(score: float, success: DesktopSuccess) -> bool:
    """Whether a score wins by `env.own.success`; with `score` the threshold of rewards decides."""
    return {"positive": score > 0, "full": score >= 1, "score": False}[success]


class DesktopEpisode:
    """Raises EnvironmentFailure if the machine fails or there is no score, UserError if no machine is available, or if
    the task needs OSWorld's package and it is missing.
    """

    def __init__(self, pool: MachinePool, verifier: StateVerifier, task: Task) -> None:
        self._pool, self._verifier, self._own = pool, verifier, pool.own
        self._task = task
        self._machine: DesktopMachine | None = None
        self._client: GuestClient | None = None
        self._size = (0, 0)
        self._over = True
        self._told = ""  # the text of the last observation

    async def reset(self) -> Observation:
        await self.end()
        scenario = self._scenario()
        if reason := unplayable_reason(scenario, self._own):
            raise EnvironmentFailure(f"the task cannot be played here: {reason}")
        self._machine = await self._pool.take()
        try:
            self._client = GuestClient(self._machine.address, longest_s=self._own.step_s)
            await self._client.greet()
            await set_up(scenario.config, self._client, self._own)
            self._size = await self._client.screen_size()
            png = await self._client.screenshot(still_ms=self._own.still_ms)
        except (MachineLost, GuestRefusal, SetupFailure) as error:
            await self.end()
            raise EnvironmentFailure(f"the machine could not be set up: {error}") from None
        except asyncio.CancelledError:
            await self.end()
            raise
        self._over = False
        return self._seen(self._task.instruction, png)

    async def step(self, action: str) -> Observation:
        if self._client is None or self._over:
            raise EnvironmentFailure("a step before the first reset or after the end")
        deed = deed_of_action(action)
        if deed is not None and deed.motion is Motion.DONE:
            return await self._judged(failed=not deed.succeeded)
        try:
            if deed is not None:
                await self._client.do([guest_deed(deed, self._size)])
            png = await self._client.screenshot(still_ms=self._own.still_ms)
        except (MachineLost, GuestRefusal) as error:
            await self.end()
            raise EnvironmentFailure(f"the machine {error}") from None
        return self._seen(SCREEN if deed is not None else f"{UNREADABLE}\n{SCREEN}", png, understood=deed is not None)

    async def stopped(self) -> Observation:
        """`Concludes`: the state in which the episode was left is scored."""
        return replace(await self._judged(failed=False), text=self._told)

    def close(self) -> None:
        """Close at once. If an event loop runs, it cleans up the machine in the background."""
        client, self._client = self._client, None
        machine, self._machine = self._machine, None
        if client is not None:
            client.drop()
        if machine is not None:
            machine.drop()
            with contextlib.suppress(RuntimeError):
                self._pool.release(machine)

    async def end(self) -> None:
        """Close and wait for the end."""
        client, self._client = self._client, None
        machine, self._machine = self._machine, None
        try:
            if client is not None:
                await client.close()
        finally:
            if machine is not None:
                await self._pool.give(machine)

    async def _judged(self, *, failed: bool) -> Observation:
        assert self._client is not None
        self._over = True
        try:
            png = await self._client.screenshot(still_ms=self._own.still_ms)
            score = await self._verifier.score(self._scenario().evaluator, self._client, failed=failed)
        except (MachineLost, GuestRefusal, NotScored) as error:
            await self.end()
            raise EnvironmentFailure(f"the episode could not be scored: {error}") from None
        await self.end()
        success = self._own.success
        won = _score_wins(score, success)
        reward = score if success == "score" else None
        return Observation(text=SCREEN, won=won, done=True, reward=reward, images=(png,), place=_screen_place(png))

    def _seen(self, text: str, png: bytes, *, understood: bool = True) -> Observation:
        self._told = text
        return Observation(text=text, images=(png,), place=_screen_place(png), understood=understood)

    def _scenario(self) -> Scenario:
        try:
            return scenario_of(self._task)
        except (ScenarioError, ValueError) as error:
            raise EnvironmentFailure(f"the task is none: {error}") from None


def _screen_place(png: bytes) -> str:
    """Equal for screens that look the same."""
    return hashlib.sha256(png).hexdigest()[:16]


def _verifier_of(own: DesktopParams) -> StateVerifier:
    """The verifier, with a process for OSWorld's metrics if a Python for them is configured."""
    return StateVerifier(own, OfficialMetrics(own.osworld_python) if own.osworld_python else None)


class DesktopService:
    """`rla.envs.protocols.Service` and `Measured`: the episodes of a stage share a pool of machines and a verifier."""

    def __init__(self, own: DesktopParams) -> None:
        self._pool, self._verifier = MachinePool(own), _verifier_of(own)

    def make(self, task: Task) -> DesktopEpisode:
        return DesktopEpisode(self._pool, self._verifier, task)

    def figures(self) -> Mapping[str, float]:
        return self._pool.figures()

    async def close(self) -> None:
        await self._pool.close()
        await self._verifier.close()


class LoneDesktop:
    """An episode with a pool of its own, from the reset to the end."""

    def __init__(self, task: Task, own: DesktopParams) -> None:
        self._task, self._own = task, own
        self._service: DesktopService | None = None
        self._episode: DesktopEpisode | None = None
        self._closing: asyncio.Task[None] | None = None

    async def reset(self) -> Observation:
        await self._end()
        self._service = DesktopService(self._own)
        self._episode = self._service.make(self._task)
        return await self._episode.reset()

    async def step(self, action: str) -> Observation:
        assert self._episode is not None
        return await self._episode.step(action)

    async def stopped(self) -> Observation:
        """`Concludes`."""
        assert self._episode is not None
        return await self._episode.stopped()

    def close(self) -> None:
        if self._episode is not None:
            self._episode.close()
        with contextlib.suppress(RuntimeError):
            self._closing = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        service, self._service = self._service, None
        episode, self._episode = self._episode, None
        try:
            if episode is not None:
                await episode.end()
        finally:
            if service is not None:
                await service.close()
