"""Pages that change: a neighbour of the same family, another seed, a hint added to or removed from the instruction.

    {"page": "click-tab-2-hard", "seed": 1701, "hint": ""}

A page that is easier stands before it in its family, one that is harder behind it (`rla.envs.browser.pages.FAMILIES`).
Whatever an edit says, the child is proven (`rla.envs.browser.proving`), and stays on the task's side of the splits.
A hint is text for the policy alone: it is cut to one line, and no page ever sees it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rla.envs.authoring import changed_task, edit_values
from rla.envs.browser.browsers import BrowserPool
from rla.envs.browser.desk import latest_desk, latest_mode
from rla.envs.browser.expert_rules import RULES
from rla.envs.browser.pages import FAMILIES, family_of, neighbour_pages, playable_pages
from rla.envs.browser.proving import ProvenScene, Unproven, proven_once_more
from rla.envs.browser.scenes import LONGEST_HINT, PageScene, scene_of
from rla.envs.browser.state import plain_line
from rla.envs.browser.tasks import SEEDS, scene_is_held_out, scene_likeness
from rla.envs.course import Course, Phase
from rla.envs.quoting import QUOTED, plain_tags, quoted
from rla.envs.views import Message, ProposalView, RejectedEdit
from rla.store.records import Direction, Task

PAGE_FIELDS: Mapping[str, type] = {"page": str, "seed": int, "hint": str}
TRIED = 4  # seeds of which the one with the longest or shortest way is proposed
START = "Start with:"  # a hint by rule: the expert's first command
MODEL_RULES = (
    "You change tasks on which an agent learns to use web pages. Make this one {wanted}. You may choose another page "
    "of the same family, another seed, which draws other names and numbers, and a hint of one sentence that the agent "
    "reads below the task; an empty hint gives none. A hint may only say how to do what the page asks for."
)


def drawn_page_edits(task: Task, *, direction: str, seed: int, count: int) -> list[str]:
    """Up to `count` edits of a task: neighbour_pages first, then hints, then other seeds of the same page."""
    rng, scene = random.Random(seed), scene_of(task)
    harder = direction == Direction.HARDER
    edits = list(rule_edits(scene, rng, harder=harder))
    texts = [json.dumps(edit, sort_keys=True) for edit in edits]
    return list(dict.fromkeys(texts))[:count]


def rule_edits(scene: PageScene, rng: random.Random, *, harder: bool) -> Iterator[dict[str, Any]]:
    """The edits of a direction, the likeliest first."""
    for page in neighbour_pages(scene.page, harder=harder):
        if page in RULES:
            yield {"page": page, "seed": rng.randrange(SEEDS), "hint": ""}
    ways = ways_of(scene, [rng.randrange(SEEDS) for _ in range(TRIED)])
    if harder and scene.hint:
        yield {"page": scene.page, "seed": scene.seed, "hint": ""}
    elif not harder and not scene.hint and not scene.look:  # which speaks of elements
        own = ways_of(scene, [scene.seed])
        yield from ({"page": scene.page, "seed": scene.seed, "hint": f"{START} {way.commands[0]}"} for way in own)
    ways.sort(key=lambda way: len(way.commands), reverse=harder)
    yield from ({"page": scene.page, "seed": way.scene.seed, "hint": scene.hint * harder} for way in ways)


def ways_of(scene: PageScene, seeds: Sequence[int]) -> list[ProvenScene]:
    """The scenes of these seeds of the page that the expert wins."""

    mode = latest_mode()

    async def found(pool: BrowserPool) -> list[ProvenScene]:
        ways = []
        for seed in seeds:
            try:
                ways.append(await proven_once_more(pool, scene.page, seed, mode))
            except Unproven:
                continue
        return ways

    return latest_desk().ask(found)


def child_of_page(task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
    """The proven child. Raises RejectedEdit."""
    values, parent, first = edit_values(edit, PAGE_FIELDS), scene_of(task), scene_of(root)
    page, seed, hint = values["page"], values["seed"], checked_hint(values["hint"])
    if page not in playable_pages(latest_desk().pool.folder) or family_of(page) != family_of(first.page):
        raise RejectedEdit(f"no page of the family {family_of(first.page)}")
    if not 0 <= seed < SEEDS:
        raise RejectedEdit(f"seed must lie in [0, {SEEDS})")
    mode, seen = latest_mode(), bool(first.look)
    try:
        found = latest_desk().ask(lambda pool: proven_once_more(pool, page, seed, mode, hint=hint, seen=seen))
    except Unproven as reason:
        raise RejectedEdit(str(reason)) from None
    scene = found.scene
    if scene_is_held_out(scene) is not scene_is_held_out(first):
        raise RejectedEdit("what it shows is on the other side of the splits")
    if scene_likeness(scene) in {*taken, scene_likeness(parent), scene_likeness(first)}:
        raise RejectedEdit("there is such a task already")
    return changed_task(
        task,
        content=scene.content(),
        edit=values | {"hint": hint},
        taken=taken,
        created=created,
        kind=page,
        instruction=scene.instruction,
        plan_length=len(found.commands),
    )


def checked_hint(hint: str) -> str:
    """A hint as the policy reads it. Raises RejectedEdit where it is too long or not one line of plain text."""
    if len(hint) > LONGEST_HINT or hint != plain_tags(plain_line(hint)):
        raise RejectedEdit(f"a hint is one line of at most {LONGEST_HINT} characters, without tags")
    return hint


def page_course(episodes: Sequence[Mapping[str, Any]]) -> Course:
    """Two phases: until something on the page has changed, and from then on."""
    lost = {"beginning": 0, "acting": 0}
    spent = {"beginning": 0, "acting": 0}
    verbs: Counter[str] = Counter()
    won = 0
    for episode in episodes:
        texts = [step["observation"] for step in episode["steps"]] + [episode["final_observation"]]
        still = first_change(texts)
        spent["beginning"] += still
        spent["acting"] += len(episode["steps"]) - still
        verbs.update(step["action"].split(" ", 1)[0] for step in episode["steps"])
        won += episode["outcome"] == 1
        if episode["outcome"] != 1:
            lost["acting" if still < len(episode["steps"]) else "beginning"] += 1
    abouts = {"beginning": "the first change of the page", "acting": "what follows it"}
    phases = tuple(Phase(name=n, about=abouts[n], ended=lost[n], steps=spent[n]) for n in abouts)
    return Course(episodes=len(episodes), won=won, phases=phases, spent=tuple(verbs.most_common()))


def first_change(texts: Sequence[str]) -> int:
    """The number of steps before the first that changes what is shown. The first text begins with the task."""
    shown = [texts[0].partition("\n")[2], *texts[1:]]
    return next((number for number in range(len(shown) - 1) if shown[number + 1] != shown[number]), len(shown) - 1)


class PageProposals:
    """A `ProposalPrompt`."""

    criticised = True

    def messages(self, task: Task, view: ProposalView) -> list[Message]:
        scene = scene_of(task)
        wanted = "harder" if view.direction == Direction.HARDER else "easier"
        pages = " < ".join(pages_for(scene))
        parts = {
            "Task": task.instruction,
            "Hint": scene.hint or "(none)",
            "Course": f"{view.accuracy:.0%} of the episodes are won. {view.critique}",
        }
        ending = 'Answer with one JSON object: {"page": ..., "seed": ..., "hint": ...}.'
        asked = f"{MODEL_RULES.format(wanted=wanted)}\nThe page is {scene.page}. From easy to hard: {pages}."
        return [{"role": "user", "content": f"{asked}\n{QUOTED}\n\n{quoted(parts)}\n\n{ending}"}]

    def schema(self, task: Task) -> Mapping[str, Any]:
        properties = {
            "page": {"enum": list(pages_for(scene_of(task)))},
            "seed": {"type": "integer", "minimum": 0, "maximum": SEEDS - 1},
            "hint": {"type": "string", "maxLength": LONGEST_HINT},
        }
        return {
            "type": "object",
            "properties": properties,
            "required": sorted(properties),
            "additionalProperties": False,
        }


def pages_for(scene: PageScene) -> tuple[str, ...]:
    """The pages of its family that the expert knows, from easy to hard."""
    return tuple(page for page in FAMILIES.get(family_of(scene.page), (scene.page,)) if page in RULES) or (scene.page,)
