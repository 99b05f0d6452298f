"""Parameters of environments on an OpenEnv server: `env.own` (`docs/guide/openenv.md`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from rla.config import Config
from rla.config.schema import from_one, without_effect
from rla.errors import UserError
from rla_bridges.adapters.openenv_client import base_url


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEnvParams:
    """Parameters of environments on an OpenEnv server (`docs/guide/openenv.md`)."""

    id: str = without_effect("")  # base URL of the server; tasks hold its name, so it may move
    select: Literal["seed", "listed"] = "seed"  # how a task names its episode: by a seed, or by the server's own list
    reset: str = ""  # more arguments for every reset, as a JSON object
    instruction: str = ""  # the policy's instruction; empty: the server's description of itself
    rules: str = ""  # rules at the top of the prompt for chat models
    text_field: str = ""  # the entry of an observation that the policy reads; empty: see the guide
    max_chars: int = from_one(20_000)  # longer observations are cut
    connections: int = without_effect(64, least=1, most=65536)  # episodes at once
    timeout: float = without_effect(60.0, above=0.0, most=86400.0)  # seconds until a server counts as lost

    def reset_arguments(self) -> dict[str, Any]:
        """`reset` as an object. Raises UserError."""
        try:
            found = json.loads(self.reset or "{}")
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise UserError(f"env.own.reset is {self.reset!r}; write a JSON object, such as '{{\"level\": 2}}'")
        return found


def openenv_params(config: Config) -> OpenEnvParams:
    """The environment's own parameters."""
    own: OpenEnvParams = config.env.own
    return own


def check_openenv(config: Config) -> None:
    """Raises UserError for values that do not work with any server. The address is needed only at first use."""
    own = openenv_params(config)
    if own.id:
        base_url(own.id)
    own.reset_arguments()
