"""Speed and memory of web pages in Chromium: `make -f tests/bench/Makefile bench-gui [BROWSERGYM=venv/bin/python]`.

For 1, 8 and 32 contexts of one browser: resets on an open page and in a new context, steps (a click, the state, a
screenshot), screenshots alone, and memory (PSS) of the browser with its driver. BROWSERGYM is the Python of a virtual
environment that has `browsergym-miniwob`: its own loop on the same pages then runs between two passes of ours. The last
line has the trainer on the screenshots of a small run, packed and one sequence a pass.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.driver import BrowserPage
from rla_screens.browser.pages import miniwob_folder, page_file
from rla_screens.browser.params import BrowserParams, browser_program

from rla.cli.app import run

PAGES = ("click-test", "focus-text-2", "click-button-sequence")
CONTEXTS = (1, 8, 32)
AT = (150.0, 205.0)  # where a click changes nothing
RUN = (
    *("env.name=browser", "env.max_steps=2", "env.own.mode=pixels", "tasks.kinds=[click-button-sequence]"),
    *("tasks.train_scenes=16", "tasks.test_scenes=2", "tasks.tasks_per_scene=1", "warm_start.enabled=false"),
    *("model.architecture=vision", "model.own.patch_size=14", "model.context=384", "generator.context=384"),
    *(
        "policy.reply=text",
        "policy.history=window",
        "policy.images=2",
        "judge.prompt=plain",
        "judge.decoding=admissible",
        "judge.max_tokens=12",
    ),
    *("rollout.tasks_per_iteration=16", "rollout.rollouts_per_task=4", "train_policy.kl_coef=0.0"),
    *("adaptation.enabled=false", "credit.judged=step", "credit.policy_band=[-1, 2]"),
    *("launch.threads=1", "train_policy.updates=1"),
)


def descendants(root: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, left = list[int](), [root]
    while left:
        found += (mine := children.get(left.pop(), []))
        left += mine
    return found


def memory_mb() -> float:
    """PSS of all that this process has started."""
    total = 0
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                total += int(line.split()[1]) if line.startswith("Pss:") else 0
    return total / 1024


async def rate(pages: Sequence[BrowserPage], each: int, work: Callable[[BrowserPage, int], Awaitable[object]]) -> float:
    """Calls a second of `work`, `each` on every page, all pages at once."""

    async def many(page: BrowserPage) -> None:
        for number in range(each):
            await work(page, number)

    began = time.perf_counter()
    await asyncio.gather(*map(many, pages))
    return len(pages) * each / (time.perf_counter() - began)


async def step(page: BrowserPage, _: int) -> None:
    await page.click(*AT)
    await page.pass_time()
    await page.read()
    await page.screenshot()


async def measured(contexts: int, calls: int) -> dict[str, float]:
    pool = BrowserPool(BrowserParams(mode="pixels", contexts=contexts))
    files = [page_file(pool.folder, PAGES[number % len(PAGES)]) for number in range(contexts)]
    each = max(2, calls // contexts)
    began = time.perf_counter()
    pages = list(await asyncio.gather(*(pool.take() for _ in files)))
    await asyncio.gather(*(page.start(file, 0) for page, file in zip(pages, files, strict=True)))
    opened = contexts / (time.perf_counter() - began)
    try:
        return {
            "new/s": opened,
            "resets/s": await rate(pages, each, lambda page, number: page.restart(number)),
            "steps/s": await rate(pages, each, step),
            "screenshots/s": await rate(pages, each, lambda page, _: page.screenshot()),
            "MB": memory_mb(),
        }
    finally:
        for page in pages:
            await pool.give(page)
        await pool.close()


async def alone(steps: int) -> tuple[float, float]:
    """Seconds of a reset in a new context and of a step, one after the other: what one agent waits for."""
    pool = BrowserPool(BrowserParams(mode="pixels"))
    resets, acting = 0.0, 0.0
    for name in PAGES:
        began = time.perf_counter()
        page = await pool.take()
        await page.start(page_file(pool.folder, name), 1)
        await page.screenshot()
        resets += time.perf_counter() - began
        began = time.perf_counter()
        for number in range(steps):
            await step(page, number)
        acting += time.perf_counter() - began
        await pool.give(page)
    await pool.close()
    return resets / len(PAGES), acting / (len(PAGES) * steps)


def browsergym(python: str, steps: int) -> tuple[float, float]:
    """The same of BrowserGym's loop. Its pinned Playwright gets the system's browser by a folder of browsers."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "chromium-1117" / "chrome-linux" / "chrome"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nexec {browser_program(BrowserParams())} --no-sandbox "$@"\n')
        program.chmod(0o755)
        environment = os.environ | {
            "PLAYWRIGHT_BROWSERS_PATH": folder,
            "MINIWOB_URL": f"{(miniwob_folder() / 'miniwob').as_uri()}/",
        }
        script = Path(__file__).with_name("gui_browsergym.py")
        done = subprocess.run(
            [python, str(script), str(steps), *PAGES], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    reset, acting = json.loads(done.stdout.splitlines()[-1])
    return float(reset), float(acting)


def trained(batch: int) -> float:
    """Tokens a second of `train-policy` with passes of so many tokens."""
    stage("train-policy", "--iteration", "1", "--overwrite", "--set", f"train_policy.tokens_per_batch={batch}")
    return float(json.loads(Path("r/1/policy/metrics.json").read_text())["tokens_per_second"])


def trainer_line() -> str:
    """The trainer on the screenshots of a small run; votes of an untrained judge are what it trains on."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name in ("make-tasks", "init-model"):
            stage(name)
        for name in ("rollout", "score-steps", "validate-tasks", "compute-rewards"):
            stage(name, "--iteration", "1")
        packed, single = trained(8192), trained(1)
    return f"train-policy: packed {packed:.0f} tokens/s, one sequence a pass {single:.0f} tokens/s"


def stage(name: str, *more: str) -> None:
    flags = [text for setting in RUN for text in ("--set", setting)]
    with contextlib.redirect_stdout(io.StringIO()):
        assert run([name, "--run", "r", *more, *flags]) == 0, name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=320, help="of each kind, over all contexts")
    parser.add_argument("--browsergym", default="", help="the Python that has browsergym-miniwob")
    parser.add_argument("--steps", type=int, default=10, help="of an episode beside BrowserGym's")
    parser.add_argument("--no-train", action="store_true")
    given = parser.parse_args()
    print(f"{'contexts':>8} {'new/s':>8} {'resets/s':>9} {'steps/s':>8} {'shots/s':>8} {'MB':>7}")
    for contexts in CONTEXTS:
        found = asyncio.run(measured(contexts, given.calls))
        print(f"{contexts:>8} {found['new/s']:>8.1f} {found['resets/s']:>9.1f} {found['steps/s']:>8.1f}", end=" ")
        print(f"{found['screenshots/s']:>8.1f} {found['MB']:>7.0f}", flush=True)
    if given.browsergym:
        first = asyncio.run(alone(given.steps))
        theirs = browsergym(given.browsergym, given.steps)
        second = asyncio.run(alone(given.steps))
        ours = [(one + other) / 2 for one, other in zip(first, second, strict=True)]
        for word, mine, other in zip(("reset", "step"), ours, theirs, strict=True):
            print(
                f"{word}: ours {1000 * mine:.0f} ms, BrowserGym {1000 * other:.0f} ms: {other / mine:.1f} x", flush=True
            )
    if not given.no_train:
        print(trainer_line())


if __name__ == "__main__":
    main()
