"""`generator.backend: server`: an OpenAI-compatible completions server as the engine of the stages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rla.config.load import address_flaws
from rla.config.sections import GeneratorConfig
from rla.errors import UserError

if TYPE_CHECKING:
    from rla.llm.base import Generator
    from rla.llm.chat import ChatFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEngine:
    """`generator.own`: which server, and which of its models. Outputs do not depend on either."""

    url: str = ""  # base URL, such as http://localhost:8000/v1
    # the served name; set it if the server has several models and none is known to be this stage's checkpoint
    model: str = ""

    def __post_init__(self) -> None:
        for flaw in address_flaws(self.url, "generator.own.url", "url: generator.backend is server"):
            raise UserError(flaw)

    def generator(
        self, config: GeneratorConfig, *, model: Path | str, chat: ChatFormat, seed: int, training: bool
    ) -> Generator:
        """The served model with the weights of `model`. Raises UserError (`connect`)."""
        from rla_bridges.engines.completions import connect

        return connect(self.url, self.model, config, model=model, chat=chat, training=training)

    def free_memory(self, config: GeneratorConfig) -> None:
        """Does nothing: the server keeps its memory."""
