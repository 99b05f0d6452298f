"""Which keys an output depends on: metadata that `rla.config.load.effective` reads."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from rla.config.bounds import bounds_of

# Metadata of keys and sections on which no output depends: no origin is digested from them.
WITHOUT_EFFECT = {"effect": False}


def without_effect(default: Any, **limits: Any) -> Any:
    """A key that may change within a run, such as where a server is. `limits`: of a number, as `ranged` has them."""
    return field(default=default, metadata=WITHOUT_EFFECT | (bounds_of(default, **limits) if limits else {}))


def recorded_as(default: Any, name: str) -> Any:
    """A key of which outputs depend on what the property `name` of its section makes of it."""
    return field(default=default, metadata={"recorded_as": name})
