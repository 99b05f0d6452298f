"""The content of a page task: a page, its seed, its parameters, perhaps a hint, and a digest of the first state.

Equal page, seed and parameters give equal scenes everywhere. If they do not, for example with another version of the
package, the digest differs and the episode is not played.
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
    """`utterance`: the page's instruction. `digest`: of the first state, to detect a page that begins differently.
    `hint`: extra text for the policy. `look`: digest of the appearance, for scenes seen as pixels, because pages that
    read alike may look different. `parameters`: those that differ from the page's own values
    (`rla_screens.browser.page_parameters`). `blank`: a white picture is shown instead of the page.
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
        """The payload of a task. Fields added later are left out if unused, so that ids do not change."""
        content = asdict(self)
        return {name: value for name, value in content.items() if name not in LATER or value}


def scene_of(task: Task) -> PageScene:
    """Raises EnvironmentFailure if the task was made for another environment."""
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
