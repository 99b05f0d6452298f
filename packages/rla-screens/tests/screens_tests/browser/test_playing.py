"""Which pages a player of scenes keeps open."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from rla_screens.browser import playing
from rla_screens.browser.modes import played_mode
from rla_screens.browser.pages import pages_folder
from rla_screens.browser.params import BrowserParams
from rla_screens.browser.playing import ScenePlayer
from rla_screens.browser.proving import Unproven, idle_scene
from rla_screens.browser.scenes import PageScene
from rla_screens.browser.state import PageState

EMPTY = PageState(utterance="", elements=())


class Pages:
    """A pool whose pages note what they are asked for; `click-test-2` keeps something of an episode."""

    def __init__(self) -> None:
        self.own, self.folder, self.lost = BrowserParams(), pages_folder(""), 0
        self.given, self.asked = list[Any](), list[str]()

    def begins_again(self, page: str) -> bool:
        return page != "click-test-2"

    def settings(self, page: str, parameters: Any) -> dict[str, int]:
        return {}

    async def take(self) -> Any:
        async def start(file: Any, seed: int, settings: Any) -> PageState:
            self.asked.append(f"load {file.stem}")
            return EMPTY

        async def restart(seed: int, settings: Any) -> PageState:
            self.asked.append(f"again {seed}")
            return EMPTY if seed != 13 else PageState(utterance="another", elements=())

        return SimpleNamespace(start=start, restart=restart)

    async def give(self, page: Any) -> None:
        self.given.append(page)


def begun(player: ScenePlayer, *scenes: tuple[str, int]) -> None:
    async def played() -> None:
        for page, seed in scenes:
            await player.begin(PageScene(page=page, seed=seed, utterance="", digest=EMPTY.digest()))

    asyncio.run(played())


def test_pages_that_take_turns_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "KEPT", 2)
    pool = Pages()
    player: Any = ScenePlayer(pool)  # type: ignore[arg-type]
    begun(player, ("click-test", 1), ("click-tab", 2), ("click-test", 3), ("click-tab", 4))
    assert pool.asked == ["load click-test", "load click-tab", "again 3", "again 4"]
    begun(player, ("click-link", 5), ("click-tab", 6), ("click-test", 7))  # click-test was not used for longest
    assert pool.asked[4:] == ["load click-link", "again 6", "load click-test"] and pool.given == []


def test_a_page_that_keeps_something_or_begins_otherwise_is_loaded() -> None:
    pool = Pages()
    player: Any = ScenePlayer(pool)  # type: ignore[arg-type]
    begun(player, ("click-test-2", 1), ("click-test-2", 2), ("click-test", 3), ("click-test", 13))
    assert pool.asked == ["load click-test-2", "load click-test-2", "load click-test", "again 13", "load click-test"]


def test_a_lost_page_takes_the_others_along() -> None:
    pool = Pages()
    player: Any = ScenePlayer(pool)  # type: ignore[arg-type]
    begun(player, ("click-test", 1), ("click-tab", 2))
    asyncio.run(player.lose())
    begun(player, ("click-test", 3))
    assert pool.lost == 1 and len(pool.given) == 2 and pool.asked[2:] == ["load click-test"]


@pytest.mark.parametrize(("pays_after", "max_steps", "won"), [(3, 0, True), (6, 0, False), (6, 6, True), (4, 3, True)])
def test_nothing_is_done_as_often_as_an_episode_may_do_it(pays_after: int, max_steps: int, won: bool) -> None:
    """A page that pays after so many steps of doing nothing; a proof waits four times at least."""
    waited = list[None]()

    async def take() -> Any:
        async def start(file: Any, seed: int, settings: Any) -> PageState:
            return EMPTY

        async def pass_time() -> None:
            waited.append(None)

        async def read() -> PageState:
            paid = len(waited) >= pays_after
            return PageState(utterance="", elements=(), done=paid, reward=float(paid))

        return SimpleNamespace(start=start, pass_time=pass_time, read=read)

    pool: Any = Pages()
    pool.take = take
    mode = played_mode(BrowserParams(), 1.0, max_steps)
    proof = idle_scene(pool, "click-test", 1, mode, parameters={}, seen=False)
    if won:
        with pytest.raises(Unproven, match="by doing nothing"):
            asyncio.run(proof)
    else:
        assert asyncio.run(proof).page == "click-test"
    assert len(waited) == max(4, max_steps)
