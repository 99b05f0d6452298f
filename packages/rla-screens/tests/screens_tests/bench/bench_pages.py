"""Every page of MiniWoB++: started, photographed, played at random for 20 steps twice, and closed.

    make -f tests/bench/Makefile browser-pages [PAGES_ARGS="--out docs/results/gui.md"]

Prints a table, one row a page. With `--out` the table stands between two marks of a Markdown file, which are made where
they are missing; the rest of the file stays. `again`: the same steps gave the same answers on a new page. `kept`: the
page shows the same where it is begun anew, after some random steps, without being loaded. `expert`: scenes of EXPERT
that the expert wins.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import random
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.commands import deed_of, page_commands
from rla_screens.browser.deeds import DeedKind, perform
from rla_screens.browser.driver import BrowserPage, PageLost, page_answering
from rla_screens.browser.expert_rules import RULES, expert_deed
from rla_screens.browser.pages import CLOCK_BOUND, KEEPING, all_pages, family_of
from rla_screens.browser.params import BrowserParams
from rla_screens.browser.proving import LONGEST
from rla_screens.browser.state import PageState

from rla.envs.observation import EnvironmentFailure

STEPS, EXPERT, RESTARTS, PLAYED, PAGES_AT_ONCE, PATIENCE = 20, 4, 6, 6, 4, 300.0
MARKS = ("<!-- browser-pages -->", "<!-- /browser-pages -->")
COLUMNS = ("page", "family", "elements", "commands", "steps", "again", "kept", "expert", "note")


@dataclass(kw_only=True)
class PageRow:
    page: str
    elements: int = 0
    commands: int = 0
    steps: int = 0
    again: bool = False
    kept: bool = False
    expert: int | None = None
    note: str = ""

    @property
    def works(self) -> bool:
        return self.steps == STEPS and self.again and not self.note.startswith("fails")

    def cells(self) -> tuple[str, ...]:
        expert = "" if self.expert is None else f"{self.expert} of {EXPERT}"
        marks = ("yes" if self.again else "no", "yes" if self.kept else "no")
        numbers = map(str, (self.elements, self.commands, self.steps))
        return (self.page, family_of(self.page), *numbers, *marks, expert, self.note)


async def at_random(shown: BrowserPage, file: Path) -> list[str]:
    """What each of STEPS random commands leads to; an episode that is over is followed by that of the next seed."""
    rng, seed, seen = random.Random(file.stem), 0, list[str]()
    state = await shown.start(file, seed)
    while len(seen) < STEPS:
        if state.done:
            seed += 1
            state = await shown.start(file, seed)
        state = await random_step(shown, state, rng)
        seen.append(f"{state.digest()} {state.done} {state.reward}")
    return seen


async def random_step(shown: BrowserPage, state: PageState, rng: random.Random) -> PageState:
    deed = deed_of(rng.choice(page_commands(state)))
    if deed is not None:
        await perform(shown, state, deed)
    await shown.pass_time()
    return await shown.read()


async def row_of(pool: BrowserPool, page: str) -> PageRow:
    """Raises nothing: what fails is said in the row."""
    row, file = PageRow(page=page), pool.folder / "miniwob" / f"{page}.html"
    row.note = "depends on the clock: left out" if page in CLOCK_BOUND else ""
    shown = await pool.take()
    try:
        async with page_answering(PATIENCE):
            state: PageState = await shown.start(file, 0)
            row.elements, row.commands = len(state.elements), len(page_commands(state))
            with Image.open(io.BytesIO(await shown.screenshot())) as picture:
                assert picture.size == (pool.own.width, pool.own.height)
            first = await at_random(shown, file)
            row.steps, row.again = len(first), await at_random(shown, file) == first
            row.kept = await begins_alike(shown, file)
            row.expert = await wins_of(shown, page, file) if page in RULES else None
    except (PageLost, EnvironmentFailure) as error:
        row.note = f"fails: {error}"[:100]
    finally:
        await pool.give(shown)
    print("|", " | ".join(row.cells()), "|", flush=True)
    return row


async def begins_alike(shown: BrowserPage, file: Path) -> bool:
    """Whether a page that was played PLAYED steps at random shows the same as one that is loaded anew."""
    rng = random.Random(file.stem)
    fresh = [(await shown.start(file, seed)).digest() for seed in range(RESTARTS)]
    state = await shown.start(file, 0)
    for seed in range(RESTARTS):
        for _ in range(PLAYED):
            if not state.done:
                state = await random_step(shown, state, rng)
        state = await shown.restart(seed)
        if state.digest() != fresh[seed]:
            return False
    return True


async def wins_of(shown: BrowserPage, page: str, file: Path) -> int:
    """Scenes that the expert wins, of seeds that nobody has chosen."""
    wins = 0
    for seed in range(100, 100 + EXPERT):
        state = await shown.start(file, seed)
        for _ in range(LONGEST):
            deed = expert_deed(page, state)
            if state.done or deed.kind is DeedKind.DONE:
                break
            await perform(shown, state, deed)
            await shown.pass_time()
            state = await shown.read()
        wins += state.done and state.reward > 0
    return wins


async def all_rows(pages: list[str]) -> list[PageRow]:
    pool, turn = BrowserPool(BrowserParams()), asyncio.Semaphore(PAGES_AT_ONCE)

    async def in_turn(page: str) -> PageRow:
        async with turn:
            return await row_of(pool, page)

    try:
        return list(await asyncio.gather(*map(in_turn, pages or all_pages(pool.folder))))
    finally:
        await pool.close()


def table(rows: list[PageRow]) -> str:
    known = [row for row in rows if row.expert is not None]
    always = sum(row.expert == EXPERT for row in known)
    unknown = sorted(row.page for row in rows if not row.kept and row.page not in KEEPING | CLOCK_BOUND)
    lines = [
        f"{len(rows)} pages, of which {sum(row.works for row in rows)} play {STEPS} random steps twice with the same "
        f"answers. The expert knows {len(known)} pages, and wins all of {EXPERT} scenes of {always}.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
        *("| " + " | ".join(row.cells()) + " |" for row in rows),
    ]
    if unknown:
        lines += [
            "",
            f"Not among the pages that are loaded for each episode, and keep something: {', '.join(unknown)}.",
        ]
    return "\n".join(lines)


def write_between_marks(path: Path, text: str) -> None:
    old = path.read_text(encoding="utf-8") if path.exists() else "# Graphical interfaces\n"
    start, end = MARKS
    if start not in old:
        old = f"{old.rstrip()}\n\n## Pages\n\n{start}\n{end}\n"
    before, _, rest = old.partition(start)
    path.write_text(f"{before}{start}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a Markdown file")
    parser.add_argument("pages", nargs="*", help="all by default")
    given = parser.parse_args()
    rows = asyncio.run(all_rows(given.pages))
    text = table(rows)
    print(text)
    if given.out is not None:
        write_between_marks(given.out, text)


if __name__ == "__main__":
    main()
