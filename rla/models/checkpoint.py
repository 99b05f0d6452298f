"""Checkpoint folders: `model/` for inference, `state/` to train on, `checkpoint.json` with counts and digest.

    model/             an ordinary Hugging Face folder with the tokenizer, weights as the configured dtype
    state/             the train state (`rla.training.state`) and `reference.safetensors`: the first weights
    adapter/           with LoRA; then there are no weights in model/ or reference in state/ (`rla.models.adapters`)
    metrics.json       what the stage that made it reported
    metrics.jsonl      the same for each of its updates, a line each
    checkpoint.json    counts and digest; a folder without it is not a checkpoint
    files.json         size and SHA-256 of every file of the three folders (`rla.models.verifying`)
    pruned.json        the parts that were removed to save space (`rla.store.removing`)

A checkpoint is written beside its place and renamed, so it is there whole or not at all. A plain Hugging Face
folder (or hub id) serves wherever a checkpoint is read: it is the start of a run, and its own weights are the
reference. Its files must be regular ones, and of a size that such a file has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from rla.errors import UserError
from rla.store.layout import making_call
from rla.store.record import MIB, read_json, read_regular, refuse_irregular, refuse_other_version
from rla.store.removing import MODEL, STATE, bring_back, pruned_parts, refuse_pruned

LARGEST = (  # of files that are read whole, by the first pattern that fits; the greatest vocabularies take 35 MiB
    ("*.index.json", 64 * MIB),
    ("tokenizer.json", 64 * MIB),
    ("vocab.*", 64 * MIB),
    ("merges.txt", 64 * MIB),
    ("*.model", 64 * MIB),
    ("*.json", 16 * MIB),
    ("*.jinja", MIB),
    ("*.txt", 64 * MIB),
)
MANIFEST, METRICS, HISTORY = "checkpoint.json", "metrics.json", "metrics.jsonl"
REFERENCE, ADAPTER = "reference", "adapter"
BASE = "base.json"  # in model/: which weights an adapter lies over
VERSION = "rla"  # key of the record: which version wrote it
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json")


def check_model_folder(folder: Path) -> None:
    """UserError for a pipe or a device among the files of a model, and for one that is too large to be what it says."""
    for path in sorted(folder.iterdir()):
        if path.exists():  # a link may lead nowhere
            refuse_irregular(path, next((most for name, most in LARGEST if fnmatch(path.name, name)), None))


def is_companion(name: str) -> bool:
    """Whether it is a file beside the weights: configuration, tokenizer, templates."""
    return not name.endswith(WEIGHT_SUFFIXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where the parts lie, None where there is no such part. `reference`: its folder; `updates`: those of the run."""

    model: Path | str
    state: Path | None = None
    reference: Path | None = None
    adapter: Path | None = None
    updates: int = 0
    digest: str | None = None


def open_checkpoint(source: Path | str) -> Checkpoint:
    """One that a killed call has left aside comes back first.

    Raises UserError if another version wrote it, and if its weights were pruned.
    """
    folder = Path(source)
    bring_back(folder)
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return Checkpoint(model=source)
    try:
        content = json.loads(read_regular(manifest))
        found, updates, digest = content[VERSION], int(content["updates"]), str(content["digest"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{manifest}: not a checkpoint manifest; run {making_call(manifest)} again") from error
    refuse_other_version(manifest, found, remedy="train again")
    read_json(manifest)  # refuses one that was changed
    refuse_pruned(folder, MODEL)
    state, adapter = folder / "state", folder / ADAPTER
    whole = STATE not in pruned_parts(folder)
    return Checkpoint(
        model=folder / "model",
        state=state if whole and any(state.glob("weights*.safetensors")) else None,
        reference=state if any(state.glob(f"{REFERENCE}*.safetensors")) else None,
        adapter=adapter if adapter.is_dir() else None,
        updates=updates,
        digest=digest,
    )


def model_folder(path: Path) -> Path:
    """The Hugging Face folder inside a checkpoint, or the path itself where it is a plain model folder.

    Raises UserError as `open_checkpoint` and `check_model_folder` do.
    """
    open_checkpoint(path)
    folder = path / "model" if (path / "model").is_dir() else path
    if folder.is_dir():
        check_model_folder(folder)
    return folder
