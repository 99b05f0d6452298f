"""A version reads what it wrote itself: runs, shards and checkpoints of another one are refused."""

from __future__ import annotations

from pathlib import Path

from rla import __version__
from rla.config.differences import shown_value
from rla.errors import UserError


def refuse_other_version(place: Path, found: object, *, remedy: str) -> None:
    """UserError unless `found`, which is what `place` says of the version that wrote it, is this version."""
    if found != __version__:
        wrote = f"version {shown_value(found)}" if found else "an unknown version"
        raise UserError(f"{place}: written by {wrote} of rla, and this is {__version__}; {remedy}, or use that version")
