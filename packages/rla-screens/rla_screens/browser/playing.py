"""Episodes for demonstrations, labels and proofs, in the browser of this process.

There are many such episodes, they are short, and the pages alternate. So pages stay open. A page that keeps no state is
restarted with a seed, which is ten times faster than loading it. The start then has to match the task.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

from rla.config import Config
from rla.envs.observation import EnvironmentFailure, Observation, offered
from rla.envs.protocols import Demonstration
from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.driver import BrowserPage, page_answering
from rla_screens.browser.episode import Acted, BrowserView
from rla_screens.browser.modes import played_mode
from rla_screens.browser.pages import page_file
from rla_screens.browser.params import browser_params
from rla_screens.browser.scenes import PageScene
from rla_screens.browser.state import PageState

KEPT = 12  # pages of a player
KNOWN = 1024  # scenes for which a player caches results


def _nothing_yet(key: Hashable) -> dict[Any, Any]:
    return {}


class ScenePlayer:
    """Plays scenes one after the other, each on the page with its name. At most KEPT pages are open, the most recently
    used ones. Raises PageLost; call `lose` afterwards.
    """

    def __init__(self, pool: BrowserPool) -> None:
        self._pool = pool
        self._kept: dict[str, BrowserPage] = {}  # by name; the most recently used one is last
        self._page: BrowserPage | None = None  # the scene's page
        self._known = lru_cache(maxsize=KNOWN)(_nothing_yet)

    async def begin(self, scene: PageScene) -> PageState:
        """The first state of a scene. Raises PageLost, and EnvironmentFailure if it differs from the task's."""
        file, settings = page_file(self._pool.folder, scene.page), self._pool.settings(scene.page, scene.parameters)
        name = scene.page if self._pool.begins_again(scene.page) else ""
        shown = name in self._kept and name != ""
        page = self._page = await self._page_for(name)
        async with page_answering(self._pool.own.reset_s):
            if shown:
                state = await page.restart(scene.seed, settings)
                if state.digest() == scene.digest and (not scene.look or state.look() == scene.look):
                    return state
            state = await page.start(file, scene.seed, settings)
        if state.digest() != scene.digest:
            raise EnvironmentFailure(f"{scene.page} begins differently than when the task was made; make new tasks")
        return state

    async def _page_for(self, name: str) -> BrowserPage:
        """The open page with this name, or a new one, which replaces the least recently used page if there are too
        many. Pages that have to be loaded each time share one page without a name.
        """
        if name in self._kept:
            page = self._kept.pop(name)
        elif len(self._kept) < KEPT:
            page = await self._pool.take()
        else:
            page = self._kept.pop(next(iter(self._kept)))
        self._kept[name] = page
        return page

    def known(self, key: Hashable) -> dict[Any, Any]:
        """Cached results about a scene, which the caller adds to. They do not depend on the page."""
        return self._known(key)

    async def act(self, view: BrowserView, state: PageState, scene: PageScene, action: str) -> tuple[PageState, Acted]:
        """The state after an action of a mode, whether the action could be parsed, and whether it ends the episode.
        Raises PageLost.
        """
        page = self._page
        assert page is not None
        async with page_answering(self._pool.own.step_s):
            acted = await view.act(page, state, scene, action)
            if acted.understood and not acted.ended:
                await page.pass_time()
            return await page.read(), acted

    async def seen(self, view: BrowserView, state: PageState, scene: PageScene, *, first: bool) -> Observation:
        """The mode's observation of the current state. Raises PageLost."""
        page = self._page
        assert page is not None
        async with page_answering(self._pool.own.step_s):
            return await view.show(page, state, scene, first=first)

    async def lose(self) -> None:
        """Drop all pages, because the browser may have ended with the lost one."""
        self._pool.lost += 1
        await self.close()

    async def close(self) -> None:
        self._page = None
        while self._kept:
            await self._pool.give(self._kept.popitem()[1])

    async def replayed(self, view: BrowserView, scene: PageScene, actions: Sequence[str]) -> tuple[PageState, bool]:
        """The state after some actions, and whether they have ended the episode. Actions after the end do nothing."""
        state = await self.begin(scene)
        for action in actions:
            state, acted = await self.act(view, state, scene, action)
            if state.done or acted.ended:
                return state, True
        return state, False


async def demonstrated_page(
    player: ScenePlayer, scene: PageScene, config: Config, view: BrowserView, *, seed: int, random_share: float
) -> Demonstration:
    """The expert's episode, in which a share of the actions is drawn from the view's mistakes; at most `env.max_steps`
    steps. Raises PageLost.
    """
    rng = random.Random(seed)
    state = await player.begin(scene)
    seen, commands, actions = [await player.seen(view, state, scene, first=True)], list[tuple[str, ...]](), list[str]()
    over = False
    while not over and len(actions) < config.env.max_steps:
        shown = offered(seen[-1].commands, config.env.omit_commands)
        action = view.expert(state, scene)
        if shown and (rng.random() < random_share or action not in shown):
            action = rng.choice(view.mistakes(state, shown) or shown)
        commands.append(shown)
        actions.append(action)
        state, acted = await player.act(view, state, scene, action)
        over = state.done or acted.ended
        seen.append(await player.seen(view, state, scene, first=False))
    return Demonstration(
        observations=[one.text for one in seen[:-1]],
        commands=commands,
        actions=actions,
        final_observation=seen[-1].text,
        won=is_won(state, config),
        images=[one.images for one in seen] if any(one.images for one in seen) else (),
    )


def is_won(state: PageState, config: Config) -> bool:
    """By `env.own.success`; with `score` by the threshold of rewards."""
    return played_mode(browser_params(config), config.env.reward_threshold).is_won(state)
