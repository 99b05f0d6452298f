"""What it costs to export a long run for Inspect's viewer and to open it: `bench-view RUN=runs/name`.

The run is the first iteration of a real one (128 episodes in the small run) as many times as are asked for. Pages are
opened in Chromium, where there is one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rla_study.showing.episodes import episode_frame, played_in
from rla_study.viewing.inspect_folder import export_new, write_site
from rla_study.viewing.inspect_server import viewer

from rla.envs.registry import load_config
from rla.text import readable_bytes
from tests.browser.chromium import browser_page, chromium


def long_run(found: Path, made: Path, iterations: int) -> None:
    """Iterations that are links to the files of the first one."""
    shutil.copytree(found / "0/pool", made / "0/pool")
    for number in range(1, iterations + 1):
        for name in ("trajectories", "scores", "rewards/policy", "rewards/rm"):
            shutil.copytree(found / "1" / name, made / str(number) / name, copy_function=os.link)
        shutil.copytree(found / "0/pool", made / str(number) / "pool", copy_function=os.link)


def timed(what: str, call: Callable[[], object]) -> None:
    begun, used = time.perf_counter(), time.process_time()
    call()
    print(
        f"{what:40} {time.perf_counter() - begun:8.1f} s {time.process_time() - used:8.1f} s of processor", flush=True
    )


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def opened(folder: Path, iterations: int, task: str) -> None:
    """Serve the logs; open the list, the table of one log, and an episode."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with browser_page() as page:

        def open_list() -> None:
            page.open(f"http://127.0.0.1:{port}")
            page.wait_text(f"{iterations} rows")

        def open_table() -> None:
            page.open(f"http://127.0.0.1:{port}/#/tasks/iteration-{iterations:04}.eval")
            page.wait_text(task)

        def open_episode() -> None:
            page.click(task)
            page.wait_text("vote_1:")

        begun = time.perf_counter()
        with viewer(folder, port):
            print(f"{'the viewer answers':40} {time.perf_counter() - begun:8.1f} s")
            timed("the list of all logs", open_list)
            timed("the table of a log", open_table)
            timed("an episode", open_episode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, default=Path("runs/alfworld-tiny"))
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--iterations", type=int, default=200)
    options = parser.parse_args()
    config = load_config(options.params, [])
    with tempfile.TemporaryDirectory(dir=options.run.parent) as folder:
        run = Path(folder) / "long"
        long_run(options.run, run, options.iterations)
        episodes = episode_frame(played_in(run, config, 1))
        steps = f"{len(episodes)} episodes each, {readable_bytes(size(run / '1'))} of shards"
        print(f"{options.iterations} iterations, {steps}")
        logs = run / "inspect"
        timed("export", lambda: export_new(run, config, logs))
        print(f"{'logs':40} {readable_bytes(size(logs)):>10}")
        timed("export again, nothing is new", lambda: export_new(run, config, logs))
        timed("static site", lambda: write_site(logs, Path(folder) / "site"))
        print(f"{'site':40} {readable_bytes(size(Path(folder) / 'site')):>10}")
        if chromium() is not None:
            opened(logs, options.iterations, sorted(episodes["task_id"])[0])


if __name__ == "__main__":
    main()
