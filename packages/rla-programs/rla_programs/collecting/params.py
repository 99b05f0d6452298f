"""The section `collect` of a params file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rla.config import Config
from rla.config.load import chat_server_flaws
from rla.config.schema import fraction, from_one, from_zero, heat
from rla.config.sections import JudgeServerConfig
from rla.errors import UserError

SECTION = "collect"
TEACHER_KEY = "RLA_TEACHER_API_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectConfig:
    """Conversations of a teacher that plays the environment, for `warm_start.conversations` (`docs/guide/sft.md`)."""

    teacher: Literal["solver", "server"] = "solver"  # the environment's scripted solver, or any chat server
    # real: the teacher plays the environment; stitched: calls replace written steps afterwards, and nothing is played
    variant: Literal["real", "stitched"] = "real"
    episodes: int = from_one(1)  # of each task
    outcome: Literal["won", "all"] = "won"  # which episodes are kept
    keep: int = from_one(1)  # conversations kept of each question, the best by quality
    keep_source: int = from_zero(0)  # conversations kept of each data source when choosing from earlier ones; 0: all
    # if two conversations share more than this part of their replies, one is kept; 1: both
    alike: float = fraction(0.9)
    temperature: float = heat(0.8)  # of the server's replies
    max_tokens: int = from_one(4096)  # of a reply of the server
    server: JudgeServerConfig = field(default_factory=JudgeServerConfig)

    def __post_init__(self) -> None:
        if self.teacher == "server":
            for flaw in chat_server_flaws(self.server, f"{SECTION}.server", "teacher is server"):
                raise UserError(flaw)


def collect_params(config: Config) -> CollectConfig:
    """The section, which `rla.sections` adds to every config."""
    section: CollectConfig = getattr(config, SECTION)
    return section
