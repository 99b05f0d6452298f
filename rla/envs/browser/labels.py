"""Ground truth about steps, by replay: does the expert still win from here, and is it nearer than it has ever been?

+1 for an action after which the expert wins and needs fewer steps than at any moment before. -1 for every other:
one that ends the episode, or after which the expert does not win within `env.max_steps`; and one that brings it no
nearer. `before` and `after` are the steps that the expert needs, infinite where it does not win.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import inf

from rla.config import Config
from rla.envs.browser.commands import deed_of, page_commands
from rla.envs.browser.deeds import DeedKind, PageDeed
from rla.envs.browser.expert.rules import expert_deed
from rla.envs.browser.playing import ScenePlayer, is_won
from rla.envs.browser.scenes import PageScene
from rla.envs.browser.state import PageState
from rla.envs.browser.text_view import page_text
from rla.envs.observation import offered
from rla.envs.views import Labelled

NEARER, USELESS, SPOILT, UNREAD = "it helps", "it does not help", "it cannot be won any more", "nothing happens"
REASONS = (NEARER, USELESS, SPOILT, UNREAD)
NONE = PageDeed(kind=DeedKind.DONE)


class StepLabels:
    """Labels of one scene. What is known of a state is remembered: pages that read alike are alike."""

    def __init__(self, player: ScenePlayer, scene: PageScene, config: Config) -> None:
        self._player, self._scene, self._config = player, scene, config
        self._left: dict[str, float] = {}

    async def of(self, actions: Sequence[str], *, others: int, rng: random.Random) -> list[list[Labelled]]:
        """Per action the label of it, then of `others` that were offered."""
        deeds, steps = list[PageDeed](), list[list[Labelled]]()
        state = await self._player.begin(self._scene)
        nearest = await self.left(deeds, state)
        for action in actions:
            shown = [one for one in offered(page_commands(state), self._config.env.omit_commands) if one != action]
            tried = rng.sample(shown, min(others, len(shown)))
            before, found = await self.left(deeds, state), list[Labelled]()
            for one in (*tried, action):
                found.append(await self._labelled(deeds, one, before=before, nearest=nearest))
            steps.append([found[-1], *found[:-1]])
            deed = deed_of(action)
            if deed is not None:
                deeds.append(deed)
            state = await self._player.replayed(self._scene, deeds)
            nearest = min(nearest, found[-1].after if found[-1].after is not None else inf)
        return steps

    async def _labelled(self, deeds: Sequence[PageDeed], action: str, *, before: float, nearest: float) -> Labelled:
        deed = deed_of(action)
        then = [*deeds, deed] if deed is not None else list(deeds)
        state = await self._player.replayed(self._scene, then)
        over = deed is not None and deed.kind is DeedKind.DONE
        after = before if deed is None else inf if over else await self.left(then, state)
        if deed is None:
            score, reason = -1, UNREAD
        elif after == inf:
            score, reason = -1, SPOILT
        else:
            score, reason = (1, NEARER) if after < nearest else (-1, USELESS)
        return Labelled(
            action=action,
            next_observation=page_text(state),
            score=score,
            reason=reason,
            before=before,
            after=after,
        )

    async def left(self, deeds: Sequence[PageDeed], state: PageState) -> float:
        """Steps that the expert needs after some deeds, which have led to `state`; infinite where it does not win."""
        if state.done:
            return 0.0 if is_won(state, self._config) else inf
        key = state.digest()
        if key not in self._left:
            self._left[key] = await self._played(state)
        return self._left[key]

    async def _played(self, state: PageState) -> float:
        """The page is in `state` now."""
        for number in range(self._config.env.max_steps):
            deed = expert_deed(self._scene.page, state)
            if deed.kind is DeedKind.DONE:
                return inf
            state = await self._player.do(state, deed)
            if state.done:
                return number + 1.0 if is_won(state, self._config) else inf
        return inf
