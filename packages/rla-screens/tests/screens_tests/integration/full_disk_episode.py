"""Plays one episode where nothing can be written, from its start or while it goes on, and says how that ends.

A program of `test_browser_full_disk.py`. `full` and `filling`: it is called with a small file system for temporary
files, which it fills. `refused`: no program that is started may write to any file.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
from pathlib import Path

from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.episode import BrowserEpisode
from rla_screens.browser.modes import page_view
from rla_screens.browser.params import BrowserParams
from rla_screens.browser.scenes import PageScene
from rla_screens.browser.tasks import first_scene

from rla.envs.observation import EnvironmentFailure
from rla.errors import UserError

PAGE, SEED = "click-test", 1
MOST = 1 << 24  # bytes


def fill(folder: Path) -> None:
    """Take all the room that there is, to the last byte."""
    with (folder / "filling").open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 10, 1):
            try:
                while file.tell() < MOST:
                    file.write(b"\0" * size)
            except OSError:
                continue
    assert (folder / "filling").stat().st_size < MOST, "give it a small file system"


def left_behind(folder: Path) -> dict[str, list[str]]:
    """Files, and processes that have the folder in their environment or are below this one."""
    found, parents = list[str](), dict[str, str]()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            said, stat = (entry / "environ").read_bytes(), (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[entry.name] = stat[1]
        if stat[0] != "Z" and f"{folder}/rla-browser-".encode() in said:
            found.append(entry.name)
    below = [pid for pid, parent in parents.items() if parent == str(os.getpid())]
    files = [file.name for file in folder.iterdir() if file.name != "filling"]
    return {"files": files, "processes": sorted({*found, *below})}


async def played(when: str) -> str:
    folder = Path(tempfile.gettempdir())
    own = BrowserParams(mode="pixels", reset_s=10.0, step_s=10.0)
    pool = BrowserPool(own)
    try:
        if when == "full":
            fill(folder)
        if when == "refused":
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        page = await pool.take()
        scene: PageScene = await first_scene(pool, page, PAGE, SEED, anew=True)
        await pool.give(page)
        episode = BrowserEpisode(pool, scene, page_view(own), success="positive")
        try:
            await episode.reset()
            if when == "filling":
                fill(folder)
            for action in ("click 5 5", "scroll down", "click 50 50", "done"):
                seen = await episode.step(action)
            return f"done: {seen.done}"
        finally:
            episode.close()
    finally:
        await pool.close()


def main() -> None:
    try:
        said = asyncio.run(played(sys.argv[1]))
    except (EnvironmentFailure, UserError) as error:
        said = f"{type(error).__name__}: {error}"
    print(json.dumps({"said": said, **left_behind(Path(tempfile.gettempdir()))}))


if __name__ == "__main__":
    main()
