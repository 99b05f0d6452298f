"""Episodes for demonstrations, labels and proofs, in the browser of this process.

Such episodes are many and short, and the pages take turns. So pages stay open, and one is begun anew by its seed where
it keeps nothing of the episode before, which is ten times faster than loading it. What it shows then has to be what the
task says.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

from rla.config import Config
from rla.envs.observation import EnvironmentFailure, Observation, offered
from rla.envs.views import Demonstration
from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.driver import BrowserPage, page_answering
from rla_screens.browser.episode import Acted, BrowserView
from rla_screens.browser.modes import played_mode
from rla_screens.browser.pages import page_file
from rla_screens.browser.params import browser_params
from rla_screens.browser.scenes import PageScene
from rla_screens.browser.state import PageState

KEPT = 12  # pages of a player
KNOWN = 1024  # scenes of which a player remembers something


def _nothing_yet(key: Hashable) -> dict[Any, Any]:
    return {}


class ScenePlayer:
    """Plays scenes one after the other, each on the page of its name: at most KEPT are open, those used last. Raises
    PageLost; `lose` them then.
    """

    def __init__(self, pool: BrowserPool) -> None:
        self._pool = pool
        self._kept: dict[str, BrowserPage] = {}  # what each shows; the one used last is the last
        self._page: BrowserPage | None = None  # that of the scene
        self._known = lru_cache(maxsize=KNOWN)(_nothing_yet)

    async def begin(self, scene: PageScene) -> PageState:
        """The first state of a scene. Raises PageLost, and EnvironmentFailure where it is another one."""
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
            raise EnvironmentFailure(f"{scene.page} begins otherwise than when the task was made; make new tasks")
        return state

    async def _page_for(self, name: str) -> BrowserPage:
        """The one that shows it, or a new one, or in place of too many the one that was not used for longest. Pages
        that have to be loaded each time share one, which has no name.
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
        """What was found out about a scene, to which the caller adds. It does not depend on the page."""
        return self._known(key)

    async def act(self, view: BrowserView, state: PageState, scene: PageScene, action: str) -> tuple[PageState, Acted]:
        """The state after an action of a mode, and whether it was read and ends the episode. Raises PageLost."""
        page = self._page
        assert page is not None
        async with page_answering(self._pool.own.step_s):
            acted = await view.act(page, state, scene, action)
            if acted.understood and not acted.ended:
                await page.pass_time()
            return await page.read(), acted

    async def seen(self, view: BrowserView, state: PageState, scene: PageScene, *, first: bool) -> Observation:
        """What a mode shows of the state that the page is in. Raises PageLost."""
        page = self._page
        assert page is not None
        async with page_answering(self._pool.own.step_s):
            return await view.show(page, state, scene, first=first)

    async def lose(self) -> None:
        """Have new pages next time: what ended one may have ended its browser."""
        self._pool.lost += 1
        await self.close()

    async def close(self) -> None:
        self._page = None
        while self._kept:
            await self._pool.give(self._kept.popitem()[1])

    async def replayed(self, view: BrowserView, scene: PageScene, actions: Sequence[str]) -> tuple[PageState, bool]:
        """The state after some actions, and whether they have ended the episode; those after the end do nothing."""
        state = await self.begin(scene)
        for action in actions:
            state, acted = await self.act(view, state, scene, action)
            if state.done or acted.ended:
                return state, True
        return state, False


async def demonstrated_page(
    player: ScenePlayer, scene: PageScene, config: Config, view: BrowserView, *, seed: int, random_share: float
) -> Demonstration:
    """The expert's episode, with a share of the actions drawn from the mistakes of the view; at most `env.max_steps`.
    Raises PageLost.
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
