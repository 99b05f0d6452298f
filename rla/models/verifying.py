"""Whether the files of a model are those that were written: whoever reads some compares them first.

A checkpoint names size and SHA-256 of each of its files in `files.json`. For a model that `rla init-model` made, the
origin record beside its folder does. Where such a model consists of links to files elsewhere (`model.policy`), the
files that the links lead to are compared. A folder without either record is read as it is, and so is a hub id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.models.checkpoint import ADAPTER, MANIFEST, REFERENCE, WEIGHT_SUFFIXES
from rla.store.digests import FILES, below, joint_digest, read_records, record_files, verify_recorded
from rla.store.layout import making_call
from rla.store.pruned import MODEL, STATE
from rla.store.slices import CHECKSUM, optional_json

ANEW = "call `rla init-model --overwrite`"

Share = tuple[int, int]  # rank and world: each rank digests its part of the files


def anew(checkpoint: Path) -> str:
    return f"remove its checkpoint and call {making_call(checkpoint)} again, or take another checkpoint"


def origin_record(folder: Path) -> Path:
    """What a model of `rla init-model` was made from. It lies beside the folder, so that this stays an ordinary one."""
    return folder.with_name(f"{folder.name}.origin.json")


def checkpoint_around(model: Path | str) -> Path | None:
    """The checkpoint whose `model/` this is."""
    folder = Path(model)
    return folder.parent if folder.name == MODEL and (folder.parent / MANIFEST).is_file() else None


def checkpoint_records(checkpoint: Path) -> dict[str, dict[str, Any]] | None:
    """By path below the checkpoint; None if its record has no checksum. Raises UserError where they are lost."""
    found = read_records(checkpoint / FILES)
    if found is None and CHECKSUM in (optional_json(checkpoint / MANIFEST) or {}):
        raise UserError(f"{checkpoint / FILES}: missing, so its files cannot be verified; {anew(checkpoint)}")
    return found


def model_records(model: Path | str) -> dict[str, dict[str, Any]] | None:
    """By path below the model folder; None where nothing was recorded."""
    checkpoint = checkpoint_around(model)
    if checkpoint is None:
        return read_records(origin_record(Path(model).absolute()))
    found = checkpoint_records(checkpoint)
    return None if found is None else {name: dict(one) for name, one in below(found, MODEL).items()}


def model_digest(folder: Path) -> str:
    """SHA-256 over names and contents of a model folder's files, which are read where nothing was recorded of them."""
    return joint_digest(model_records(folder) or record_files(folder))


def named_content(model: Path | str) -> str:
    """A model folder and what is recorded of it and of its checkpoint: after a change of either it is another text."""
    checkpoint = checkpoint_around(model)
    records = model_records(model) if checkpoint is None else checkpoint_records(checkpoint)
    return f"{Path(model).resolve()} {joint_digest(records or {})}"


def verify_model(model: Path | str, *, weights: bool = True, share: Share = (0, 1)) -> None:
    """UserError where a file of a model folder changed; without `weights`: of configuration and tokenizer alone."""
    folder, checkpoint = Path(model), checkpoint_around(model)
    if checkpoint is not None:
        inside = f"{MODEL}/"
        verify_checkpoint(checkpoint, lambda name: name.startswith(inside) and (weights or is_companion(name)), share)
    elif folder.is_dir() and (records := model_records(folder)) is not None:
        wanted = always if weights else is_companion
        verify_recorded(folder, records, remedy=ANEW, wanted=wanted, share=share)


def verify_base(model: Path | str, *, weights: bool = True) -> None:
    """The same of what an engine with `generator.lora: adapter` reads: the adapter, and its base, not `model/`."""
    checkpoint = checkpoint_around(model)
    if checkpoint is None or not (checkpoint / ADAPTER).is_dir():
        verify_model(model, weights=weights)
        return

    def wanted(name: str) -> bool:
        if name.startswith(f"{MODEL}/"):
            return is_companion(name)
        return name.startswith(f"{ADAPTER}/") or (weights and name.startswith(f"{STATE}/{REFERENCE}"))

    verify_checkpoint(checkpoint, wanted)


def verify_to_train(model: Path | str, *, share: Share = (0, 1)) -> None:
    """The same of what training goes on from: `model/` and `state/`."""
    verify_parts(model, (MODEL, STATE), share=share)


def verify_parts(model: Path | str, parts: Collection[str], *, share: Share = (0, 1)) -> None:
    """The same of whole parts of the checkpoint: `model`, `state` or `adapter`."""
    checkpoint = checkpoint_around(model)
    if checkpoint is None:
        verify_model(model, share=share)
    else:
        verify_checkpoint(checkpoint, lambda name: name.partition("/")[0] in parts, share)


def verify_checkpoint(checkpoint: Path, wanted: Callable[[str], bool], share: Share = (0, 1)) -> None:
    """UserError where a file of a checkpoint whose path in it is `wanted` changed since it was written."""
    records = checkpoint_records(checkpoint)
    if records is not None:
        verify_recorded(checkpoint, records, remedy=anew(checkpoint), wanted=wanted, share=share)


def is_companion(name: str) -> bool:
    """Whether it is a file beside the weights: configuration, tokenizer, templates."""
    return not name.endswith(WEIGHT_SUFFIXES)


def always(name: str) -> bool:
    return True
