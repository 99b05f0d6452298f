"""Parameters of the ALFWorld environment: `env.own`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rla.config.bounds import without_effect


@dataclass(frozen=True, slots=True, kw_only=True)
class AlfworldParams:
    """Parameters of the ALFWorld environment (`docs/guide/alfworld.md`)."""

    engine: Literal["fast", "textworld"] = "fast"  # plain Python, or the alfworld package's own
    grammar: Literal["file", "packaged"] = "file"  # whose wording: the game file's, or the installed package's
    # What changed tasks are proven in; auto: both where both are installed. Candidates record what it came to.
    verify_engines: Literal["auto", "fast", "both"] = without_effect("auto")
    # Scenes of the training games, such as FloorPlan301, that do not train: they are the split held_out_rooms
    held_out_rooms: tuple[str, ...] = ()
