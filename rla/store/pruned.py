"""What was removed of a checkpoint to save space: `pruned.json` in its folder names the parts.

The marker is written before a file goes, so a part that is named is never read, whether some of its files are there or
not. A checkpoint's record and metrics are never removed: what was made from it still says so, and reports stay whole.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from rla.errors import UserError
from rla.store.slices import optional_json

PRUNED = "pruned.json"
STATE, MODEL, ADAPTER_PART = "state", "model", "adapter"
PARTS = (STATE, MODEL, ADAPTER_PART)


def pruned_parts(checkpoint: Path) -> frozenset[str]:
    """The parts of a checkpoint folder that were removed. Raises UserError for a marker that is not JSON."""
    marker = optional_json(checkpoint / PRUNED)
    return frozenset() if marker is None else frozenset(marker["parts"])


def refuse_pruned(checkpoint: Path, part: str) -> None:
    """UserError with the command that makes the checkpoint again if `part` was removed."""
    if part in pruned_parts(checkpoint):
        raise UserError(
            f"{checkpoint}: its {part}/ was pruned to save space; take a later checkpoint{remaking(checkpoint)} "
            "(checkpoints.keep and checkpoints.export_every say which ones stay)"
        )


def remaking(checkpoint: Path) -> str:
    """How to make the checkpoint of a run again, from the last one before it that is whole; empty for other folders.

    A finished checkpoint is never trained again, so its folder goes first. `checkpoints.keep=0`: the stage would prune
    again what it has just made.
    """
    numbered, name = checkpoint.parent, checkpoint.name
    if name not in ("policy", "rm") or not numbered.name.isdecimal():
        return ""
    last = first = int(numbered.name)
    while pruned_parts(numbered.with_name(str(first - 1)) / name):
        first -= 1
    run, i = shlex.quote(str(numbered.parent)), "$i" if first < last else str(last)
    command = f"rm -r {run}/{i}/{name} && rla train-{name} --run {run} --iteration {i} --set checkpoints.keep=0"
    if first < last:
        command = f"for i in $(seq {first} {last}); do {command} || break; done"
    return f", or make it again with `{command}`"
