"""An episode on a page: `AwaitedEnvironment`. The text that the policy reads and writes comes from a view, one per
mode.

A page that hangs or dies is lost: the episode so far is replayed on a new page, and every answer has to be the same as
before. A step that loses two pages ends the episode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rla.envs.observation import EnvironmentFailure, Observation
from rla.store.records import Task
from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.driver import BrowserPage, PageLost, page_answering
from rla_screens.browser.pages import page_file
from rla_screens.browser.params import Success
from rla_screens.browser.scenes import PageScene, scene_of
from rla_screens.browser.state import PageState

TRIES = 2  # a step that has lost two pages would lose a third
UNREADABLE = "Nothing happens."


@dataclass(frozen=True, slots=True, kw_only=True)
class Acted:
    """Whether an action could be parsed, and whether it ends the episode."""

    understood: bool = True
    ended: bool = False


class BrowserView(Protocol):
    """How a mode shows a page, and carries out the policy's actions. Both methods raise as `BrowserPage` does."""

    async def show(self, page: BrowserPage, state: PageState, scene: PageScene, *, first: bool) -> Observation:
        """Text, commands, pictures and place; the episode adds its own status. `first`: include the instruction."""
        ...

    async def act(self, page: BrowserPage, state: PageState, scene: PageScene, action: str) -> Acted: ...

    def expert(self, state: PageState, scene: PageScene) -> str:
        """The next action of the expert; if the expert gives up, an action that ends the episode."""
        ...

    def mistakes(self, state: PageState, shown: Sequence[str]) -> Sequence[str]:
        """The actions among which a demonstrator errs: some or all of the commands shown."""
        ...


def won(reward: float, success: Success) -> bool:
    """Whether a raw reward wins by `env.own.success`; with `score` the threshold of rewards decides."""
    return {"positive": reward > 0, "full": reward >= 1, "score": False}[success]


class BrowserEpisode:
    """Raises EnvironmentFailure if the page fails, UserError if no browser is available."""

    def __init__(self, pool: BrowserPool, scene: PageScene, view: BrowserView, *, success: Success) -> None:
        self._pool, self._scene, self._view, self._success = pool, scene, view, success
        self._file = page_file(pool.folder, scene.page)
        self._page: BrowserPage | None = None
        self._state: PageState | None = None
        self._over = True
        self._history: list[tuple[str | None, Observation]] = []

    async def reset(self) -> Observation:
        if self._page is None:
            self._page = await self._pool.take()
        self._history, self._over = [], False
        return await self._answer(None)

    async def step(self, action: str) -> Observation:
        if self._page is None or self._over:
            raise EnvironmentFailure("a step before the first reset or after the end")
        return await self._answer(action)

    def close(self) -> None:
        """Close the page in the background. If the event loop has ended, the page has ended with it."""
        page, self._page = self._page, None
        if page is not None and _in_running_loop():
            self._pool.release(page)

    async def _answer(self, action: str | None) -> Observation:
        seen, lost = None, 0
        while seen is None:
            try:
                seen = await (self._again(action) if lost else self._asked(action))
            except PageLost as error:
                lost += 1
                if lost == TRIES:
                    self._pool.lost += 1
                    self._pool.given_up += 1
                    raise EnvironmentFailure(f"the page {error}, twice, at {_asked_of_page(action)}") from None
        self._history.append((action, seen))
        self._over = seen.done or seen.won
        return seen

    async def _again(self, action: str | None) -> Observation:
        assert self._page is not None
        lost, self._page = self._page, None  # a cancelled call must not close the page twice
        self._page = await self._pool.replaced(lost)
        try:
            await self._replayed()
        except EnvironmentFailure:  # the lost page would not have ended the episode
            self._pool.given_up += 1
            raise
        return await self._asked(action)

    async def _replayed(self) -> None:
        """Raises EnvironmentFailure if a new page does not give the same answers as the one before."""
        for number, (earlier, seen) in enumerate(self._history):
            again = await self._asked(earlier)
            if replace(again, images=()) != replace(seen, images=()):
                raise EnvironmentFailure(f"played again, answer {number} of the page is another one")

    async def _asked(self, action: str | None) -> Observation:
        own = self._pool.own
        async with page_answering(own.reset_s if action is None else own.step_s):
            return await (self._begun() if action is None else self._acted(action))

    async def _begun(self) -> Observation:
        assert self._page is not None
        scene = self._scene
        self._state = await self._page.start(self._file, scene.seed, self._pool.settings(scene.page, scene.parameters))
        if self._state.digest() != scene.digest:
            raise EnvironmentFailure(f"{scene.page} begins differently than when the task was made; make new tasks")
        return await self._shown(Acted(), first=True)

    async def _acted(self, action: str) -> Observation:
        assert self._page is not None and self._state is not None
        acted = await self._view.act(self._page, self._state, self._scene, action)
        if acted.understood and not acted.ended:
            await self._page.pass_time()
        self._state = await self._page.read()
        return await self._shown(acted, first=False)

    async def _shown(self, acted: Acted, *, first: bool) -> Observation:
        assert self._page is not None and self._state is not None
        state, success = self._state, self._success
        seen = await self._view.show(self._page, state, self._scene, first=first)
        over = state.done or acted.ended
        return replace(
            seen,
            text=text_of_answer(seen, acted),
            commands=() if over else seen.commands,
            won=state.done and won(state.reward, success),
            done=over,
            reward=state.reward if success == "score" else None,
            understood=acted.understood,
        )


def text_of_answer(seen: Observation, acted: Acted) -> str:
    """The text after an action: the page's text, and a note if the action could not be parsed."""
    return seen.text if acted.understood else f"{UNREADABLE}\n{seen.text}"


def _asked_of_page(action: str | None) -> str:
    """A call of an episode in words."""
    return "the reset" if action is None else f"action {action[:200]!r}"


def _in_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class BrowserService:
    """`rla.envs.protocols.Service` and `Measured`: the episodes of a stage share a pool of browsers."""

    def __init__(self, pool: BrowserPool, view: BrowserView) -> None:
        self._pool, self._view = pool, view

    def make(self, task: Task) -> BrowserEpisode:
        return BrowserEpisode(self._pool, scene_of(task), self._view, success=self._pool.own.success)

    def figures(self) -> Mapping[str, float]:
        return self._pool.figures()

    async def close(self) -> None:
        await self._pool.close()
