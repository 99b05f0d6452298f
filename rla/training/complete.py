"""Opening a checkpoint to train on: a file that its train state lacks is an error, before any model is loaded.

    trained            weights, moments, rng, reference and state.json
    a warm start       weights and reference
    carried over       no state: the start of a run, as a plain model folder is one

Without this, training would quietly begin anew from the exported weights, or measure KL to them. A file that changed is
an error as well (`verify_together`). Whoever reads `model/` alone opens it with `open_checkpoint`, which asks for
nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.errors import UserError
from rla.models.checkpoint import Checkpoint, open_checkpoint
from rla.models.verifying import verify_model, verify_to_train
from rla.store.digests import record_files
from rla.store.pruned import STATE, refuse_pruned

if TYPE_CHECKING:
    from rla.training.ranks import Ranks

WARM = ("weights", "reference")  # `<name>.safetensors`, or `<name>-00000.safetensors` and on
TRAINED = ("moments", "rng")
COUNTS = "state.json"


def open_to_train(source: Path | str) -> Checkpoint:
    """Raises UserError as `open_checkpoint` does, and for a missing file of the train state."""
    checkpoint = open_checkpoint(source)
    refuse_pruned(Path(source), STATE)
    state = Path(checkpoint.model).parent / "state"
    if checkpoint.digest is None or not (checkpoint.updates or state.is_dir()):
        return checkpoint
    for name in WARM + (TRAINED if checkpoint.updates else ()):
        if not any((state / f"{name}{number}.safetensors").is_file() for number in ("", "-00000")):
            raise UserError(_missing(state / f"{name}.safetensors"))
    if checkpoint.updates and not (state / COUNTS).is_file():
        raise UserError(_missing(state / COUNTS))
    return checkpoint


def verify_together(checkpoint: Checkpoint, ranks: Ranks) -> None:
    """A common call of all ranks: each digests its part of the files, so that all are read once.

    Raises UserError at every rank where one of them finds a file that changed since it was written.
    """
    verify = verify_model if checkpoint.state is None else verify_to_train  # the weights alone were named
    ranks.agree(lambda: verify(checkpoint.model, share=(ranks.rank, ranks.world)))


def record_together(folder: Path, ranks: Ranks) -> dict[str, dict[str, Any]]:
    """The records of a folder that the first rank has written. A common call of all ranks, as `verify_together` is."""
    ranks.wait()
    own: dict[str, dict[str, Any]] = {}
    ranks.agree(lambda: own.update(record_files(folder, share=(ranks.rank, ranks.world))))
    found = {name: one for some in ranks.gather(own) for name, one in some.items()}
    return {name: found[name] for name in sorted(found)}


def _missing(file: Path) -> str:
    return (
        f"{file}: missing, so training cannot go on from this checkpoint; restore the file or take another "
        f"checkpoint (to begin anew from the weights alone, name {file.parent.with_name('model')})"
    )
