"""Calls of a pool of browsers that are cancelled at any moment: each place can be had again, and nothing stays."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.driver import BrowserPage
from rla_screens.browser.drivers import processes_of
from rla_screens.browser.episode import BrowserEpisode
from rla_screens.browser.pages import page_file
from rla_screens.browser.params import BrowserParams
from rla_screens.browser.tasks import first_scene
from rla_screens.browser.text_view import TextView

from screens_tests.integration.shared_browsers import SharedBrowsers, shared_browsers
from tests.browser.chromium import chromium

pytest.importorskip("playwright", reason="needs the browser extra")
pytestmark = pytest.mark.skipif(
    chromium() is None, reason="no Chromium on PATH: apt-get install chromium-headless-shell"
)
MOMENTS = (0.0, 0.004, 0.03)  # seconds after which a call is cancelled
Call = Callable[[BrowserPool, BrowserPage], Awaitable[object]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the browsers of the test leave would lie there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def one_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBrowsers]:
    """A pool with one place. Each test leaves no page open, and all of them together no file."""
    folder = tmp_path_factory.mktemp("one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        with shared_browsers(processes=1, contexts=1) as made:
            yield made
        assert list(folder.iterdir()) == []


def contexts_of(pool: BrowserPool) -> int:
    """Contexts that are open in all browsers of a pool."""
    browsers = {running.browser for _, running in pool.running()}
    return sum(len(browser.contexts) for browser in browsers)


async def taken_again(pool: BrowserPool) -> None:
    """The one place of the pool can be had, its context is the only one, and the page in it plays."""
    async with asyncio.timeout(30):
        page = await pool.take()
    assert contexts_of(pool) == len(pool.running()) == 1
    assert (await page.start(page_file(pool.folder, "click-test"), 1)).ready
    await pool.give(page)


CALLS: dict[str, Call] = {
    "give": lambda pool, page: pool.give(page),
    "replaced": lambda pool, page: pool.replaced(page),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_cancelled_call_gives_its_place_back_and_leaves_no_context(one_place: SharedBrowsers, call: str) -> None:
    async def work(pool: BrowserPool) -> None:
        for moment in MOMENTS:
            async with asyncio.timeout(30):
                page = await pool.take()
            task = asyncio.ensure_future(CALLS[call](pool, page))
            await asyncio.sleep(moment)
            if task.done() or not task.cancel():
                made = await task
                await (pool.give(made) if isinstance(made, BrowserPage) else asyncio.sleep(0))
            await taken_again(pool)

    one_place.run(work)


def test_a_page_that_nobody_waits_for_any_more_is_ended(folder: Path) -> None:
    async def run() -> None:
        pool = BrowserPool(BrowserParams(processes=1, contexts=1))
        for moment in (0.0, 0.05, 0.3, *MOMENTS):  # the first ones while the driver and the browser start
            task = asyncio.ensure_future(pool.take())
            await asyncio.sleep(moment)
            if not task.cancel():
                await pool.give(task.result())
            await taken_again(pool)
        await pool.close()

    asyncio.run(run())
    assert list(folder.iterdir()) == []


def test_waiting_for_a_place_can_be_given_up(one_place: SharedBrowsers) -> None:
    async def work(pool: BrowserPool) -> None:
        page = await pool.take()
        waiting = [asyncio.ensure_future(pool.take()) for _ in range(2)]
        await asyncio.sleep(0.01)
        for task in waiting:
            task.cancel()
        await pool.give(page)
        await taken_again(pool)

    one_place.run(work)


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.1])
def test_a_cancelled_end_of_a_pool_leaves_no_process_and_no_file(folder: Path, moment: float) -> None:
    async def run() -> Path:
        pool = BrowserPool(BrowserParams())
        page = await pool.take()
        (kept,) = folder.iterdir()
        assert len(processes_of(kept)) >= 2  # the driver and a browser
        pool.release(page)
        closing = asyncio.ensure_future(pool.close())
        await asyncio.sleep(moment)
        closing.cancel()
        await asyncio.wait({closing})
        return kept

    kept = asyncio.run(run())
    assert processes_of(kept) == [] and list(folder.iterdir()) == []


def test_an_episode_that_is_cancelled_while_it_is_replayed_gives_its_place_back(one_place: SharedBrowsers) -> None:
    async def work(pool: BrowserPool) -> None:
        page = await pool.take()
        scene = await first_scene(pool, page, "click-test", 1, anew=True)
        await pool.give(page)
        for moment in MOMENTS:
            episode = BrowserEpisode(pool, scene, TextView(), success="positive")
            await episode.reset()
            ((lost, _),) = pool.running()
            await lost.context.close()
            step = asyncio.ensure_future(episode.step("click 1"))
            await asyncio.sleep(moment)
            step.cancel()
            await asyncio.wait({step})
            episode.close()
            await taken_again(pool)

    one_place.run(work)
