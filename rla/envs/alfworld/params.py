"""Parameters of the ALFWorld environment: `env.own`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class AlfworldParams:
    """Parameters of the ALFWorld environment (`docs/guide/alfworld.md`)."""

    engine: Literal["fast", "textworld"] = "fast"
    grammar: Literal["file", "packaged"] = "file"  # whose wording: the game file's, or the installed package's
    verify_engines: Literal["auto", "fast", "both"] = "auto"  # of changed tasks; auto: both where both are installed
