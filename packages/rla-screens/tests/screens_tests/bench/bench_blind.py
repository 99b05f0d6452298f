"""How often a player wins that does not look: about what a blanked policy can win at most on a file's pages.

    bench-blind [PARAMS=packages/rla-screens/rla_screens/pipelines/browser-tiny.yaml] [BLIND_ARGS="--seed 11"]

The player knows the task's words and where things were in SCENES other scenes of the page, and clicks in the same two
places of a page whatever it shows. Of all pairs of places it takes the one that would have won most of those scenes.
Where one thing is to be clicked on, the first click wins on it, and the second one unless the first was on something
else, which ends most pages. Where there are two, the clicks win in their order. Words that stood in few scenes say
nothing, so then the page's best pair is taken. The pairs are then really played on the held-out tasks of the seed.
Needs chromium-headless-shell.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from rla_screens import PIPELINES
from rla_screens.browser.deeds import DeedKind
from rla_screens.browser.desk import BrowserDesk, browser_desk
from rla_screens.browser.environment import BrowserPages
from rla_screens.browser.expert_rules import expert_deed
from rla_screens.browser.modes import page_view
from rla_screens.browser.params import BrowserParams, browser_params
from rla_screens.browser.pixel_commands import page_grid
from rla_screens.browser.playing import ScenePlayer, is_won
from rla_screens.browser.scenes import PageScene, scene_of
from rla_screens.browser.state import PageElement
from rla_screens.screens.deeds import pixel_of
from rla_screens.screens.short import grid_clicks

from rla.config import Config
from rla.envs.registry import load_config
from rla.metrics.intervals import wilson

SCENES, TOLD = 120, 20  # scenes of a page that the player has seen; those with the same words that say something
LONGEST = 2  # clicks of a player


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Cells of the grid: `hit` is on what the expert clicks on, `wrong` on some other element alone."""

    hit: frozenset[int]
    wrong: frozenset[int]


Targets = tuple[Target, ...]  # of the expert's clicks


def cells_on(element: PageElement, own: BrowserParams) -> frozenset[int]:
    """The cells, row by row, whose middle lies on an element."""
    x, y, width, height = element.box
    middles = (pixel_of(point, own.width, own.height) for point in page_grid(own).points())
    return frozenset(
        cell for cell, (at, below) in enumerate(middles) if x <= at < x + width and y <= below < y + height
    )


async def targets_of(player: ScenePlayer, scene: PageScene, own: BrowserParams) -> Targets:
    """Of the expert's episode; empty where it does something else than click, or more often than LONGEST."""
    view, state, found = page_view(own), await player.begin(scene), list[Target]()
    while not state.done:
        deed = expert_deed(scene.page, state)
        element = state.element(deed.ref)
        if deed.kind is not DeedKind.CLICK or element is None or len(found) == LONGEST:
            return ()
        hit = cells_on(element, own)
        others = (cells_on(one, own) for one in state.elements if one.ref and one.ref != deed.ref)
        found.append(Target(hit=hit, wrong=frozenset[int]().union(*others) - hit))
        state, _ = await player.act(view, state, scene, view.expert(state, scene))
    return tuple(found)


def would_win(pair: tuple[int, int], targets: Targets) -> bool:
    first, second = pair
    if len(targets) == 1:
        only = targets[0]
        return first in only.hit or (first not in only.wrong and second in only.hit)
    return len(targets) == LONGEST and first in targets[0].hit and second in targets[1].hit


def best_pair(seen: Sequence[Targets]) -> tuple[int, int]:
    """The cells on which two clicks win most of these scenes; of equal ones the first."""
    cells = sorted({cell for targets in seen for target in targets for cell in target.hit}) or [0]
    return max(product(cells, cells), key=lambda pair: sum(would_win(pair, targets) for targets in seen))


def best_pairs(seen: Mapping[tuple[str, str], Sequence[Targets]]) -> dict[tuple[str, str], tuple[int, int]]:
    """By page and words; with empty words that of the page."""
    pages = defaultdict[tuple[str, str], list[Targets]](list)
    for (page, _), targets in seen.items():
        pages[page, ""] += targets
    told = {key: targets for key, targets in seen.items() if len(targets) >= TOLD}
    return {key: best_pair(targets) for key, targets in (pages | told).items()}


async def wins_blindly(player: ScenePlayer, scene: PageScene, config: Config, pair: tuple[int, int]) -> bool:
    own = browser_params(config)
    clicks = grid_clicks(page_grid(own))
    state, _ = await player.replayed(page_view(own), scene, [clicks[cell] for cell in pair])
    return is_won(state, config)


def seen_targets(desk: BrowserDesk, pages: BrowserPages, config: Config) -> dict[tuple[str, str], list[Targets]]:
    """Of scenes that no held-out task shows."""
    many = replace(config, tasks=replace(config.tasks, train_scenes=SCENES * len(config.tasks.kinds)))
    seen = defaultdict[tuple[str, str], list[Targets]](list)
    for task in pages.tasks(many, split=config.tasks.train_split, seed=config.seed):
        scene = scene_of(task)
        targets = desk.play(partial(targets_of, scene=scene, own=browser_params(config)))
        seen[scene.page, scene.utterance].append(targets)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--params", type=Path, default=PIPELINES / "browser-tiny.yaml")
    parser.add_argument("--seed", type=int, help="that of the file by default")
    given = parser.parse_args()
    config = load_config(given.params, [] if given.seed is None else [f"seed={given.seed}"])
    own = browser_params(config)
    if (own.mode, own.actions, config.env.max_steps) != ("pixels", "short", LONGEST):
        parser.error(f"{given.params}: needs env.own.mode pixels, env.own.actions short and env.max_steps {LONGEST}")
    pages, desk = BrowserPages(), browser_desk(own)
    pages.check(config)
    pairs = best_pairs(seen_targets(desk, pages, config))
    won = defaultdict[str, list[bool]](list)
    for task in pages.tasks(config, split=config.tasks.test_splits[0], seed=config.seed):
        scene = scene_of(task)
        pair = pairs.get((scene.page, scene.utterance)) or pairs[scene.page, ""]
        won[scene.page].append(desk.play(partial(wins_blindly, scene=scene, config=config, pair=pair)))
    print("| page | held-out tasks | won without a look |\n|---|---|---|")
    for page, wins in won.items():
        print(f"| {page} | {len(wins)} | {sum(wins) / len(wins):.0%} |")
    every = [one for wins in won.values() for one in wins]
    interval = wilson(sum(every), len(every))
    assert interval is not None
    print(f"| all | {len(every)} | {sum(every) / len(every):.1%} ({interval.low:.0%} to {interval.high:.0%}) |")


if __name__ == "__main__":
    main()
