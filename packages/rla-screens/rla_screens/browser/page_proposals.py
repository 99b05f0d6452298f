"""The prompt for a language model that changes page tasks, and the form of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rla.envs.chat_prompts import QUOTED, quoted
from rla.envs.protocols import Message, ProposalView
from rla.store.records import Direction, Task
from rla_screens.browser.desk import latest_has_parameters
from rla_screens.browser.expert_rules import RULES
from rla_screens.browser.page_parameters import PARAMETERS, PageParameter
from rla_screens.browser.pages import FAMILIES, family_of
from rla_screens.browser.scenes import LONGEST_HINT, PageScene, scene_of
from rla_screens.browser.tasks import SEEDS

MODEL_RULES = (
    "You change tasks on which an agent learns to use web pages. Make this one {wanted}. You may choose another page "
    "of the same family, another seed, which draws other names and numbers, other parameters where the page has some, "
    "and a hint of one sentence that the agent reads below the task; an empty hint gives none. A hint may only say how "
    "to do what the page asks for."
)
PLAIN_ANSWER = '{"page": ..., "seed": ..., "hint": ...}'


class PageProposals:
    """A `ProposalPrompt`."""

    criticised = True

    def messages(self, task: Task, view: ProposalView) -> list[Message]:
        scene = scene_of(task)
        wanted = "harder" if view.direction == Direction.HARDER else "easier"
        pages = " < ".join(_pages_for(scene))
        told, now = _told_parameters(scene), dict(scene.parameters) or "none that differ"
        parts = {
            "Task": task.instruction,
            "Hint": scene.hint or "(none)",
            "Course": f"{view.accuracy:.0%} of the episodes are won. {view.critique}",
        }
        names = '{"page": ..., "seed": ..., "hint": ..., "parameters": {...}}' if told else PLAIN_ANSWER
        asked = f"{MODEL_RULES.format(wanted=wanted)}\nThe page is {scene.page}. From easy to hard: {pages}."
        asked += f"\nParameters of pages, with values from easy to hard:\n{told}\nThis task has {now}." if told else ""
        ending = f"Answer with one JSON object: {names}."
        return [{"role": "user", "content": f"{asked}\n{QUOTED}\n\n{quoted(parts)}\n\n{ending}"}]

    def schema(self, task: Task) -> Mapping[str, Any]:
        properties: dict[str, Any] = {
            "page": {"enum": list(_pages_for(scene_of(task)))},
            "seed": {"type": "integer", "minimum": 0, "maximum": SEEDS - 1},
            "hint": {"type": "string", "maxLength": LONGEST_HINT},
        }
        required, known = sorted(properties), _known_parameters(scene_of(task)).values()
        if known:  # without parameters the page keeps its own values; `child_of_page` checks that a page has them
            values = {one.name: {"enum": list(one.values)} for one in known}
            properties["parameters"] = {"type": "object", "properties": values, "additionalProperties": False}
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }


def _pages_for(scene: PageScene) -> tuple[str, ...]:
    """The pages of its family that the expert knows, from easy to hard."""
    return tuple(page for page in FAMILIES.get(family_of(scene.page), (scene.page,)) if page in RULES) or (scene.page,)


def _known_parameters(scene: PageScene) -> Mapping[str, PageParameter]:
    """The parameters of the pages of its family, by page; empty for pages of another folder."""
    if not latest_has_parameters():
        return {}
    return {page: PARAMETERS[page] for page in _pages_for(scene) if page in PARAMETERS}


def _told_parameters(scene: PageScene) -> str:
    """The parameters of the pages of its family, one line per page; empty if none has parameters."""
    return "\n".join(
        f"{page}: {one.name} ({one.about}), one of {', '.join(map(str, one.values))}; without it {one.usual}"
        for page, one in _known_parameters(scene).items()
    )
