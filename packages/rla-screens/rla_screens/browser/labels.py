"""Ground truth labels of steps, by replay: does the expert still win from here, and is it nearer than ever before?

+1 for an action after which the expert wins and needs fewer steps than at any moment before. -1 for every other action:
it ends the episode, the expert does not win afterwards within `env.max_steps`, or it brings the expert no nearer.
`before` and `after` are the numbers of steps that the expert needs, infinite if it does not win.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import inf

from rla.config import Config
from rla.envs.observation import offered
from rla.envs.protocols import Labelled
from rla_screens.browser.episode import BrowserView, text_of_answer
from rla_screens.browser.params import browser_params
from rla_screens.browser.playing import ScenePlayer, is_won
from rla_screens.browser.scenes import PageScene
from rla_screens.browser.state import PageState, state_key

NEARER, USELESS, SPOILT, UNREAD = "it helps", "it does not help", "it cannot be won any more", "nothing happens"
REASONS = (NEARER, USELESS, SPOILT, UNREAD)


class PageLabels:
    """Labels of one episode. Results are cached by state: pages that read alike are treated alike."""

    def __init__(self, player: ScenePlayer, scene: PageScene, config: Config, view: BrowserView) -> None:
        self._player, self._scene, self._config, self._view = player, scene, config, view
        self._left: dict[tuple[str, int], float] = {}
        # The steps left at the start are the same for all episodes of the scene. Later states are not shared, because
        # pages that read alike may be scrolled differently.
        self._first: dict[tuple[str, int], float] = player.known(
            (scene, browser_params(config), config.env.max_steps, config.env.reward_threshold)
        )

    async def of(self, actions: Sequence[str], *, others: int, rng: random.Random) -> list[list[Labelled]]:
        """For each action its label, followed by labels of `others` offered actions."""
        done, steps = list[str](), list[list[Labelled]]()
        state = await self._player.begin(self._scene)
        commands = await self._offered(state, first=True) if others else ()
        nearest = await self._left_at_first(state)
        for action in actions:
            shown = [one for one in commands if one != action]
            tried = rng.sample(shown, min(others, len(shown)))
            before, found = self._left[state_key(state)] if not state.done else inf, list[Labelled]()
            for one in (*tried, action):
                found.append(await self._labelled(done, one, before=before, nearest=nearest))
            steps.append([found[-1], *found[:-1]])
            done.append(action)
            if len(done) == len(actions):
                break
            state, _ = await self._player.replayed(self._view, self._scene, done)
            commands = await self._offered(state, first=False) if others else ()
            nearest = min(nearest, await self.left(state))
        return steps

    async def _left_at_first(self, state: PageState) -> float:
        key = state_key(state)
        if key not in self._first:
            self._first[key] = await self.left(state)
        self._left[key] = self._first[key]
        return self._left[key]

    async def _offered(self, state: PageState, *, first: bool) -> tuple[str, ...]:
        seen = await self._player.seen(self._view, state, self._scene, first=first)
        return offered(seen.commands, self._config.env.omit_commands)

    async def _labelled(self, done: Sequence[str], action: str, *, before: float, nearest: float) -> Labelled:
        state, _ = await self._player.replayed(self._view, self._scene, done)
        state, acted = await self._player.act(self._view, state, self._scene, action)
        seen = await self._player.seen(self._view, state, self._scene, first=False)
        after = before if not acted.understood else inf if acted.ended else await self.left(state)
        if not acted.understood:
            score, reason = -1, UNREAD
        elif after == inf:
            score, reason = -1, SPOILT
        else:
            score, reason = (1, NEARER) if after < nearest else (-1, USELESS)
        return Labelled(
            action=action,
            next_observation=text_of_answer(seen, acted),
            score=score,
            reason=reason,
            before=before,
            after=after,
            next_images=seen.images,
        )

    async def left(self, state: PageState) -> float:
        """The number of steps that the expert needs from `state`, which the page is in; infinite if it does not win.
        This moves the page on, so replay before the next call.
        """
        if state.done:
            return 0.0 if is_won(state, self._config) else inf
        key = state_key(state)
        if key not in self._left:
            self._left[key] = await self._played(state)
        return self._left[key]

    async def _played(self, state: PageState) -> float:
        for number in range(self._config.env.max_steps):
            action = self._view.expert(state, self._scene)
            state, acted = await self._player.act(self._view, state, self._scene, action)
            if state.done:
                return number + 1.0 if is_won(state, self._config) else inf
            if acted.ended:
                return inf
        return inf
