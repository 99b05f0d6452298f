"""Proof that a task can be won: the expert wins it twice with the same steps, and doing nothing does not win it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rla.envs.observation import EnvironmentFailure
from rla.store.records import Task
from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.driver import NONE, PageLost, page_answering
from rla_screens.browser.modes import PlayedMode
from rla_screens.browser.page_parameters import without_usual
from rla_screens.browser.pages import page_file
from rla_screens.browser.playing import ScenePlayer
from rla_screens.browser.scenes import PageScene
from rla_screens.browser.tasks import scene_of_state

LONGEST = 40  # steps of an expert that still count as a win
WAITS = 4  # minimum number of idle steps


class Unproven(Exception):
    """A scene that the expert does not win, or that idling wins; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenScene:
    """A scene with the commands by which the expert wins it."""

    scene: PageScene
    commands: tuple[str, ...]


async def proven_scene(
    pool: BrowserPool,
    page: str,
    seed: int,
    mode: PlayedMode,
    *,
    parameters: Mapping[str, int] = NONE,
    seen: bool = False,
) -> ProvenScene:
    """The scene of a page with a seed and parameters. Raises Unproven, and PageLost if the browser fails. Holds one
    page at a time, because two proofs that wait for each other's place would deadlock.
    """
    scene = await idle_scene(pool, page, seed, mode, parameters=parameters, seen=seen)
    player = ScenePlayer(pool)
    try:
        first = await _expert_commands(player, scene, mode)
        if first != await _expert_commands(player, scene, mode):
            raise Unproven("the expert wins it once, and then by other steps")
    finally:
        await player.close()
    return ProvenScene(scene=scene, commands=first)


async def idle_scene(
    pool: BrowserPool, page: str, seed: int, mode: PlayedMode, *, parameters: Mapping[str, int], seen: bool
) -> PageScene:
    """A scene that doing nothing does not win. Raises Unproven, and PageLost."""
    shown = await pool.take()
    try:
        async with page_answering(pool.own.reset_s):
            state = await shown.start(page_file(pool.folder, page), seed, pool.settings(page, parameters))
        for _ in range(max(WAITS, mode.max_steps)):  # an episode may idle for all of its steps
            async with page_answering(pool.own.step_s):
                await shown.pass_time()
        async with page_answering(pool.own.step_s):
            idle = await shown.read()
    finally:
        await pool.give(shown)
    if mode.is_won(idle):
        raise Unproven("it is won by doing nothing")
    return replace(scene_of_state(page, seed, state, seen=seen), parameters=without_usual(page, parameters))


async def _expert_commands(player: ScenePlayer, scene: PageScene, mode: PlayedMode) -> tuple[str, ...]:
    """The actions of the mode by which the expert wins. Raises Unproven if it does not win."""
    state, said = await player.begin(scene), list[str]()
    while not state.done:
        action = mode.view.expert(state, scene)
        said.append(action)
        state, acted = await player.act(mode.view, state, scene, action)
        if not state.done and (acted.ended or len(said) == LONGEST):
            break
    if not mode.is_won(state):
        raise Unproven(f"the expert does not win {scene.page}")
    return tuple(said)


async def proven_once_more(
    pool: BrowserPool,
    page: str,
    seed: int,
    mode: PlayedMode,
    *,
    parameters: Mapping[str, int] = NONE,
    seen: bool = False,
) -> ProvenScene:
    """Like `proven_scene`, repeated once on a new page if the first was lost. Raises Unproven."""
    try:
        return await proven_scene(pool, page, seed, mode, parameters=parameters, seen=seen)
    except (PageLost, EnvironmentFailure):
        try:
            return await proven_scene(pool, page, seed, mode, parameters=parameters, seen=seen)
        except (PageLost, EnvironmentFailure) as lost:
            raise Unproven(f"its page {lost}, twice") from None


class StepsProof:
    """`rla.envs.protocols.Proof`: an episode has enough steps for the expert."""

    def __init__(self, *, max_steps: int) -> None:
        self._max_steps = max_steps

    async def __call__(self, task: Task) -> str:
        needed = task.plan_length or 0
        return f"the expert needs {needed} steps, and env.max_steps is {self._max_steps}" * (needed > self._max_steps)

    async def close(self) -> None:
        """Nothing to release."""
