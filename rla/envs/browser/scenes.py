"""What a task is: a page, the seed that it begins with, and perhaps a hint; and the digest of what is seen there first.

The page and its seed give equal scenes everywhere. The digest shows where they do not, as with another version of the
package: such an episode is not played.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from rla.envs.observation import EnvironmentFailure
from rla.store.records import Task

LONGEST_HINT = 200  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class PageScene:
    """`utterance`: what the page asks for; a seed that begins otherwise has another `digest`. `hint`: further words.
    `look`: of a scene that is looked at, what tells it apart; pages that read alike may look otherwise.
    """

    page: str
    seed: int
    utterance: str
    digest: str
    hint: str = ""
    look: str = ""

    @property
    def identity(self) -> str:
        """Equal for scenes of a page that are the same to a player."""
        return self.look or self.digest

    @property
    def instruction(self) -> str:
        return f"{self.utterance} {self.hint}".strip()

    def content(self) -> dict[str, Any]:
        """The payload of a task."""
        return asdict(self)


def scene_of(task: Task) -> PageScene:
    """Raises EnvironmentFailure where the task was made for another environment."""
    try:
        found = json.loads(task.payload)
        scene = PageScene(**found)
        if type(scene.seed) is int and all(isinstance(getattr(scene, n), str) for n in found if n != "seed"):
            return scene
    except (ValueError, TypeError, RecursionError):
        pass
    raise EnvironmentFailure(f"task {task.task_id} was not made for pages in a browser")
