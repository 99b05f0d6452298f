"""Tasks: pages with seeds. The first state of a page decides whether it is held out, so no two splits share a scene."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rla.envs.authoring import root_task
from rla.envs.observation import EnvironmentFailure
from rla.errors import UserError
from rla.seeds import derive
from rla.store.records import Task, content_id
from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.desk import BrowserDesk
from rla_screens.browser.driver import BrowserPage, PageLost, page_answering
from rla_screens.browser.pages import family_of, page_file, pages_of_kinds, playable_pages
from rla_screens.browser.scenes import PageScene, scene_of
from rla_screens.browser.state import PageState

NAME = "browser"
DEFAULT = ("click-button", "click-link", "click-tab", "click-checkboxes", "enter-text", "login-user", "focus-text")
SEEDS = 1 << 30
SIDES = 5  # one scene of this many is held out
DRY = 40  # seeds in a row without a new scene of the side after which the page is exhausted


def page_tasks(
    desk: BrowserDesk, kinds: Sequence[str], *, count: int, held_out: bool, seed: int, split: str, seen: bool
) -> list[Task]:
    """Up to `count` tasks, the same number for each page as far as pages have enough scenes. `seen`: scenes are seen as
    pixels, so scenes that differ only in appearance are different.
    """
    pages = pages_of_kinds(kinds or DEFAULT, desk.pool.folder) or playable_pages(desk.pool.folder)
    each = -(-count // len(pages))

    async def drawn(pool: BrowserPool) -> list[list[PageScene]]:
        found = [_drawn_scenes(pool, page, count=each, held_out=held_out, seed=seed, seen=seen) for page in pages]
        return list(await asyncio.gather(*found))

    scenes = desk.ask(drawn)
    return [task_of_scene(scene, split=split) for scene in list(in_turn(scenes))[:count]]


def in_turn(rows: Sequence[Sequence[PageScene]]) -> Iterator[PageScene]:
    """One item of each row, then another of each, until all rows are exhausted."""
    longest = max(map(len, rows), default=0)
    return (row[number] for number in range(longest) for row in rows if number < len(row))


async def _drawn_scenes(
    pool: BrowserPool, page: str, *, count: int, held_out: bool, seed: int, seen: bool
) -> list[PageScene]:
    """Different scenes of a page, all on one side. Raises UserError if the page cannot be played."""
    luck, found, dry = random.Random(derive(seed, NAME, page)), dict[str, PageScene](), 0
    shown = await pool.take()
    try:
        anew = True
        while len(found) < count and dry < DRY:
            scene = await first_scene(pool, shown, page, luck.randrange(SEEDS), anew=anew, seen=seen)
            anew = not pool.begins_again(page)
            if scene.identity in found or scene_is_held_out(scene) is not held_out:
                dry += 1
                continue
            found[scene.identity], dry = scene, 0
    finally:
        await pool.give(shown)
    return list(found.values())


async def first_scene(
    pool: BrowserPool, shown: BrowserPage, page: str, seed: int, *, anew: bool, seen: bool = False
) -> PageScene:
    """The scene at the start of a page with a seed; `anew`: reload the page first. Raises UserError."""
    try:
        async with page_answering(pool.own.reset_s):
            file, settings = page_file(pool.folder, page), pool.settings(page, {})
            state = await (shown.start(file, seed, settings) if anew else shown.restart(seed, settings))
    except PageLost as lost:
        raise UserError(f"the page {page} of {pool.folder} {lost}; leave it out of tasks.kinds") from None
    except EnvironmentFailure as failure:
        raise UserError(f"{page} of {pool.folder}: {failure}; leave it out of tasks.kinds") from None
    return scene_of_state(page, seed, state, seen=seen)


def scene_of_state(page: str, seed: int, state: PageState, *, seen: bool = False) -> PageScene:
    """`seen`: the scene is seen as pixels."""
    look = state.look() if seen else ""
    return PageScene(page=page, seed=seed, utterance=state.utterance, digest=state.digest(), look=look)


def scene_is_held_out(scene: PageScene) -> bool:
    """The side of the splits that a scene is on, decided by its content and not by its seed."""
    return int(content_id(NAME, scene.page, scene.identity), 16) % SIDES == 0


def task_of_scene(scene: PageScene, *, split: str) -> Task:
    """A root task. Its kind is the page, its scene the family."""
    return root_task(
        env=NAME,
        split=split,
        instruction=scene.instruction or f"Solve the page {scene.page}.",
        content=scene.content(),
        kind=scene.page,
        scene=family_of(scene.page),
    )


def blanked_tasks(tasks: Iterable[Task], *, split: str) -> list[Task]:
    """The same tasks as pixels, but shown as a blank picture. A policy that wins them does not need to look."""
    return [task_of_scene(replace(scene_of(task), blank=True), split=split) for task in tasks]


def scene_likeness(scene: PageScene) -> str:
    """Equal for tasks with the same instruction on the same page, whatever the seed."""
    return content_id(NAME, scene.page, scene.identity, scene.hint)
