"""What was removed of a checkpoint to save space: `pruned.json` in its folder names the parts.

The marker is written before a file goes and leaves after the last file is back, so a part that is named is never read,
whether some of its files are there or not. A checkpoint's record and metrics are never removed: what was made from it
still says so, and reports stay whole.
"""

from __future__ import annotations

from pathlib import Path

from rla.errors import UserError
from rla.store.layout import making_call
from rla.store.slices import optional_json

PRUNED = "pruned.json"
STATE, MODEL, ADAPTER_PART = "state", "model", "adapter"
PARTS = (STATE, MODEL, ADAPTER_PART)


def pruned_parts(checkpoint: Path) -> frozenset[str]:
    """The parts of a checkpoint folder that were removed. Raises UserError for a marker that is not JSON."""
    marker = optional_json(checkpoint / PRUNED)
    return frozenset() if marker is None else frozenset(marker["parts"])


def refuse_pruned(checkpoint: Path, part: str) -> None:
    """UserError where `part` was removed. The run's own stages make it again before they read it."""
    if part in pruned_parts(checkpoint):
        raise UserError(
            f"{checkpoint}: its {part}/ was pruned to save space; take a later checkpoint, or remove this folder and "
            f"call {making_call(checkpoint)} again (checkpoints.every and checkpoints.export_every say which ones stay)"
        )
