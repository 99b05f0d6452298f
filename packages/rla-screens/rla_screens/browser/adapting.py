"""Edits of page tasks: a neighbour in the page's family, a page parameter, another seed, a hint added or removed.

    {"page": "click-tab-2-hard", "seed": 1701, "hint": ""}
    {"page": "click-color", "seed": 1701, "hint": "", "parameters": {"MAX_COLORS": 6}}

A family lists its pages from easy to hard (`rla_screens.browser.pages.FAMILIES`). Parameters and their values come from
a table (`rla_screens.browser.page_parameters`); an edit without parameters keeps the page's own values. Every child is
proven, whatever the edit says (`rla_screens.browser.proving`), and stays on the task's side of the splits. A hint is
text for the policy alone: it is cut to one line, and the page never sees it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rla.envs.authoring import changed_task, edit_values
from rla.envs.chat_prompts import plain_tags
from rla.envs.protocols import RejectedEdit
from rla.store.records import Direction, Task
from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.desk import latest_desk, latest_mode
from rla_screens.browser.expert_rules import RULES
from rla_screens.browser.page_parameters import are_parameters, values_beyond
from rla_screens.browser.pages import family_of, neighbour_pages, playable_pages
from rla_screens.browser.proving import ProvenScene, Unproven, proven_once_more
from rla_screens.browser.scenes import LONGEST_HINT, PageScene, scene_of
from rla_screens.browser.state import plain_line
from rla_screens.browser.tasks import SEEDS, scene_is_held_out, scene_likeness

SCENE_FIELDS: Mapping[str, type] = {"page": str, "seed": int, "hint": str}
MORE_FIELDS: Mapping[str, type] = {"parameters": dict}  # optional fields
PAGE_FIELDS = frozenset({*SCENE_FIELDS, *MORE_FIELDS})
NEXT = 2  # edits of a parameter that come first: its next value with two seeds
TRIED = 4  # seeds among which the one with the longest or shortest solution is proposed
START = "Start with:"  # the hint that the rules add: the expert's first command


def drawn_page_edits(task: Task, *, direction: str, seed: int, count: int) -> list[str]:
    """Up to `count` edits of a task: the next value of a parameter, neighbours, further values, hints, other seeds."""
    edits = _rule_edits(scene_of(task), random.Random(seed), harder=direction == Direction.HARDER)
    texts = dict[str, None]()
    while len(texts) < count and (edit := next(edits, None)):  # proofs of hints and seeds take time
        texts[json.dumps(edit, sort_keys=True)] = None
    return list(texts)


def _rule_edits(scene: PageScene, rng: random.Random, *, harder: bool) -> Iterator[dict[str, Any]]:
    """The edits of a direction, the likeliest first."""
    changed = list(_parameter_edits(scene, rng, harder=harder))
    yield from changed[:NEXT]
    for page in neighbour_pages(scene.page, harder=harder):
        if page in RULES:
            yield {"page": page, "seed": rng.randrange(SEEDS), "hint": ""}
    yield from changed[NEXT:]
    kept = _with_parameters(scene.parameters)
    seeds = [rng.randrange(SEEDS) for _ in range(TRIED)]
    if harder and scene.hint:
        yield {"page": scene.page, "seed": scene.seed, "hint": "", **kept}
    elif not harder and not scene.hint and not scene.look:  # the hint names elements, which pixels do not show
        own = _ways_of(scene, [scene.seed])
        hints = [f"{START} {way.commands[0]}" for way in own]
        yield from ({"page": scene.page, "seed": scene.seed, "hint": hint, **kept} for hint in hints)
    ways = sorted(_ways_of(scene, seeds), key=lambda way: len(way.commands), reverse=harder)
    yield from ({"page": scene.page, "seed": way.scene.seed, "hint": scene.hint * harder, **kept} for way in ways)


def _parameter_edits(scene: PageScene, rng: random.Random, *, harder: bool) -> Iterator[dict[str, Any]]:
    """Each value beyond the scene's, with the scene's seed and with another one."""
    if latest_desk().pool.settings(scene.page, {}):
        for given in values_beyond(scene.page, scene.parameters, harder=harder):
            for seed in (scene.seed, rng.randrange(SEEDS)):
                yield {"page": scene.page, "seed": seed, "hint": "", "parameters": given}


def _with_parameters(given: Mapping[str, int]) -> dict[str, Any]:
    """The `parameters` field of an edit; empty if the page keeps its own values."""
    return {"parameters": dict(given)} if given else {}


def _ways_of(scene: PageScene, seeds: Sequence[int]) -> list[ProvenScene]:
    """The scenes of the page with these seeds, as far as the expert wins them."""

    mode = latest_mode()

    async def found(pool: BrowserPool) -> list[ProvenScene]:
        ways = []
        for seed in seeds:
            try:
                ways.append(await proven_once_more(pool, scene.page, seed, mode, parameters=scene.parameters))
            except Unproven:
                continue
        return ways

    return latest_desk().ask(found)


def child_of_page(task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
    """The proven child task. Raises RejectedEdit."""
    values, parent, first = page_edit_values(edit), scene_of(task), scene_of(root)
    page, seed, hint = values["page"], values["seed"], checked_hint(values["hint"])
    if page not in playable_pages(latest_desk().pool.folder) or family_of(page) != family_of(first.page):
        raise RejectedEdit(f"no page of the family {family_of(first.page)}")
    if not 0 <= seed < SEEDS:
        raise RejectedEdit(f"seed must lie in [0, {SEEDS})")
    given = _checked_parameters(page, values.get("parameters", {}))
    found = _proven_by_desk(page, seed, given, seen=bool(first.look))
    scene = replace(found.scene, hint=hint)
    if scene_is_held_out(scene) is not scene_is_held_out(first):
        raise RejectedEdit("what it shows is on the other side of the splits")
    if scene_likeness(scene) in {*taken, scene_likeness(parent), scene_likeness(first)}:
        raise RejectedEdit("there is such a task already")
    return changed_task(
        task,
        content=scene.content(),
        edit={"page": page, "seed": seed, "hint": hint, **_with_parameters(scene.parameters)},
        taken=taken,
        created=created,
        kind=page,
        instruction=scene.instruction,
        plan_length=len(found.commands),
    )


def page_edit_values(edit: str) -> dict[str, Any]:
    """The values of an edit, with or without parameters. Raises RejectedEdit."""
    return edit_values(edit, SCENE_FIELDS, optional=MORE_FIELDS)


def _checked_parameters(page: str, given: Mapping[str, Any]) -> Mapping[str, int]:
    """Parameters that the table allows. Raises RejectedEdit for other names, values, and pages of another folder."""
    if not are_parameters(page, given) or (given and not latest_desk().pool.settings(page, {})):
        raise RejectedEdit(f"{page} has no such parameters, or not these values of them")
    return given


def _proven_by_desk(page: str, seed: int, parameters: Mapping[str, int], *, seen: bool) -> ProvenScene:
    """The proof, made in the browser of this process. Raises RejectedEdit if there is none."""
    mode = latest_mode()
    try:
        return latest_desk().ask(
            lambda pool: proven_once_more(pool, page, seed, mode, parameters=parameters, seen=seen)
        )
    except Unproven as reason:
        raise RejectedEdit(str(reason)) from None


def checked_hint(hint: str) -> str:
    """A hint as the policy reads it. Raises RejectedEdit if it is too long or not one line of plain text."""
    if len(hint) > LONGEST_HINT or hint != plain_tags(plain_line(hint)):
        raise RejectedEdit(f"a hint is one line of at most {LONGEST_HINT} characters, without tags")
    return hint
