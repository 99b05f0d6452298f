"""What a task is: a page, the seed that it begins with, parameters of the page, and perhaps a hint; and the digest of
what is seen there first.

Page, seed and parameters give equal scenes everywhere. The digest shows where they do not, as with another version of
the package: such an episode is not played.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rla.envs.observation import EnvironmentFailure
from rla.store.records import Task
from rla_screens.browser.page_parameters import are_parameters

LONGEST_HINT = 200  # characters
LATER = ("parameters", "blank")  # fields that are left out of a task if they are empty


@dataclass(frozen=True, slots=True, kw_only=True)
class PageScene:
    """`utterance`: what the page asks for; a seed that begins otherwise has another `digest`. `hint`: further words.
    `look`: of a scene that is looked at, what tells it apart; pages that read alike may look otherwise. `parameters`:
    those that are not as the page has them (`rla_screens.browser.page_parameters`). `blank`: a white picture is
    shown in its place.
    """

    page: str
    seed: int
    utterance: str
    digest: str
    hint: str = ""
    look: str = ""
    parameters: Mapping[str, int] = field(default_factory=dict, hash=False)
    blank: bool = False

    @property
    def identity(self) -> str:
        """Equal for scenes of a page that are the same to a player."""
        return self.look or self.digest

    @property
    def instruction(self) -> str:
        return f"{self.utterance} {self.hint}".strip()

    def content(self) -> dict[str, Any]:
        """The payload of a task. What came later and is not used is left out, so ids are what they were before."""
        content = asdict(self)
        return {name: value for name, value in content.items() if name not in LATER or value}


def scene_of(task: Task) -> PageScene:
    """Raises EnvironmentFailure where the task was made for another environment."""
    try:
        found = json.loads(task.payload)
        scene = PageScene(**found)
        texts = all(isinstance(getattr(scene, name), str) for name in found if name not in ("seed", *LATER))
        plain = type(scene.seed) is int and type(scene.blank) is bool
        if plain and texts and are_parameters(scene.page, scene.parameters):
            return scene
    except (ValueError, TypeError, RecursionError):
        pass
    raise EnvironmentFailure(f"task {task.task_id} was not made for pages in a browser")
