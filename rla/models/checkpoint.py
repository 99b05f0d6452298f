"""Checkpoint folders, the adapters and bases of LoRA checkpoints, and the check that their files are unchanged.

    model/             an ordinary Hugging Face folder with the tokenizer and weights of the configured dtype
    state/             the train state (`rla.training.checkpoints`) and `reference.safetensors`, the initial weights
    adapter/           with LoRA, as `peft` writes it; then model/ has no weights and state/ no reference
    metrics.json       the metrics of the stage that made it
    metrics.jsonl      the metrics of each of its updates
    checkpoint.json    counts and digest; a folder without it is not a checkpoint
    files.json         size and SHA-256 of every file of the three folders, compared before they are read
    pruned.json        the parts that were removed to save space (`pruned_parts`)

With LoRA, `model/base.json` names the base, whose weights are stored once for the whole run:

    base               the model folder with the base's weights, where the run started; relative within the run's folder
    files              size and SHA-256 of those weights
    adapter            the adapter's digest, so that equal folders are equal models

`rla.models.load` adds both up, W + alpha / rank B A. An engine may load the base and take adapters by request
(`generator.lora: adapter`). Any other model is its own base and has no adapter.

A checkpoint is written to a temporary folder and renamed, so it exists completely or not at all. A plain Hugging Face
folder can be used as a checkpoint: it is the start of a run, and its own weights are the reference. Its
files must be regular files of plausible size. One of `rla init-model` records sizes and digests in `.origin.json` (of
the linked files if it consists of links); any other plain folder is read unchecked.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.errors import UserError
from rla.store.atomic import bring_back
from rla.store.layout import making_call
from rla.store.manifest import (
    FILES,
    KEY,
    MIB,
    Records,
    below,
    joint_digest,
    optional_json,
    read_json,
    read_records,
    read_regular,
    record_files,
    refuse_irregular,
    refuse_other_version,
    verify_recorded,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

READ_WHOLE = ("*.json", "*.jinja", "*.txt", "*.model", "vocab.*")
MAX_BYTES = 64 * MIB  # of files that are read whole; the largest vocabularies take 35 MiB
MANIFEST, METRICS, HISTORY, PRUNED = "checkpoint.json", "metrics.json", "metrics.jsonl", "pruned.json"
STATE, MODEL, ADAPTER = "state", "model", "adapter"
PARTS = (STATE, MODEL, ADAPTER)  # folders that may be removed to save space; record and metrics always stay
REFERENCE = "reference"
ORIGIN = ".origin.json"  # in a model folder of `rla init-model`: its origin, and size and SHA-256 of its files
REMAKE = "call `rla init-model --overwrite`"
BASE = "base.json"  # in model/: the weights that an adapter applies to
VERSION = "rla"  # key of the record: the version that wrote it
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json")
OVER = "holds an adapter over it: bring it back, and move or copy a run as a whole"
ADAPTER_SETTINGS, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# The settings of an adapter that determine what it computes.
DECIDING = ("r", "lora_alpha", "target_modules", "rank_pattern", "alpha_pattern", "use_rslora")


def check_model_folder(folder: Path) -> None:
    """Raises UserError for a pipe or a device among the files of a model, and for files of implausible size."""
    for path in sorted(folder.iterdir()):
        if path.exists():  # not a dangling link
            refuse_irregular(path, MAX_BYTES if any(fnmatch(path.name, name) for name in READ_WHOLE) else None)


def has_weights(name: str) -> bool:
    """Whether a file holds weights, as opposed to configuration, tokenizer or templates."""
    return name.endswith(WEIGHT_SUFFIXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The paths of its parts, None for a missing part. `reference` is a folder; `updates` counts those of the run."""

    model: Path | str
    state: Path | None = None
    reference: Path | None = None
    adapter: Path | None = None
    updates: int = 0
    digest: str | None = None


def open_checkpoint(source: Path | str) -> Checkpoint:
    """Open a checkpoint, first restoring one that a killed call was replacing.

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
    read_json(manifest)  # checks its checksum
    refuse_pruned(folder, MODEL)
    state, adapter = folder / STATE, folder / ADAPTER
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
    """The Hugging Face folder inside a checkpoint, or the path itself if it is a plain model folder.

    Raises UserError as `open_checkpoint` and `check_model_folder` do.
    """
    open_checkpoint(path)
    folder = path / "model" if (path / "model").is_dir() else path
    if folder.is_dir():
        check_model_folder(folder)
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A folder as `peft` writes it. Equal digests mean equal functions over equal bases. The update is scale * B A."""

    folder: Path
    digest: str
    rank: int
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterBase:
    """The model folder that an adapter applies to, and the recorded size and SHA-256 of its weights by file name."""

    folder: Path
    files: Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The folder of a model's base, the files with the base's weights, and the adapter if there is one."""

    base: Path | str
    weights: tuple[Path, ...]
    adapter: Adapter | None = None


def base_of(model: Path | str) -> AdapterBase | None:
    """The base of a LoRA checkpoint's `model/` folder; None for any other model. Raises UserError."""
    file = Path(model) / BASE
    content = optional_json(file)
    if content is None:
        return None
    files = read_records(file)
    if not isinstance(content.get("base"), str) or not files:
        raise UserError(f"{file}: does not say which base the adapter lies over; run {making_call(file)} again")
    return AdapterBase(folder=Path(os.path.normpath(file.parent.absolute() / content["base"])), files=files)


def write_base(model: Path, base: AdapterBase, *, place: Path, adapter: Path) -> None:
    """Write `base.json` to the folder `model`, which will be renamed to `place`. Within a run the path is relative, so
    that the run can be moved or copied.
    """
    folder, place = base.folder.resolve(), place.resolve()
    named = os.path.relpath(folder, place) if folder.is_relative_to(place.parent.parent.parent) else str(folder)
    content = {"base": named, "adapter": _adapter_in(adapter).digest, KEY: dict(base.files)}
    (model / BASE).write_text(json.dumps(content, indent=2) + "\n")


def parts_of(model: Path | str) -> Parts:
    """The parts of a checkpoint's `model/` folder, or of a plain folder, without reading the base's weights.

    Raises UserError if an adapter's files or its base are missing.
    """
    folder = Path(model)
    base = base_of(folder)
    if base is None:
        return Parts(base=model, weights=tuple(sorted(folder.glob("*.safetensors"))))
    for name in base.files:
        if not (base.folder / name).is_file():
            raise UserError(f"{base.folder / name}: missing; {folder.parent} {OVER}")
    adapter = _adapter_in(folder.parent / ADAPTER)
    return Parts(base=base.folder, weights=tuple(base.folder / name for name in sorted(base.files)), adapter=adapter)


def _adapter_in(folder: Path) -> Adapter:
    """The adapter of a folder. Raises UserError if it cannot be read."""
    try:
        settings = json.loads(read_regular(folder / ADAPTER_SETTINGS))
        rank, scale = int(settings["r"]), float(settings["lora_alpha"]) / int(settings["r"])
        deciding = {key: sorted(one) if isinstance(one := settings.get(key), list) else one for key in DECIDING}
        digest = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode())
        with (folder / ADAPTER_WEIGHTS).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        raise UserError(
            f"{folder}: not a readable adapter ({type(error).__name__}: {error}); run {making_call(folder)} again"
        ) from error
    return Adapter(folder=folder, digest=digest.hexdigest(), rank=rank, scale=scale)


def add_adapter(model: PreTrainedModel, adapter: Adapter) -> None:
    """Add an adapter to the weights of its base, layer by layer. Each sum is computed in fp32 and rounded once."""
    import torch
    from safetensors import safe_open

    with torch.no_grad(), safe_open(adapter.folder / ADAPTER_WEIGHTS, framework="pt") as content:
        for name in sorted(name for name in content.keys() if ".lora_A." in name):  # noqa: SIM118 (no mapping)
            weight = model.get_parameter(name.removeprefix("base_model.model.").replace(".lora_A.", "."))
            first, second = (content.get_tensor(one) for one in (name, name.replace(".lora_A.", ".lora_B.")))
            weight.copy_(weight.float() + (second @ first).mul_(adapter.scale).to(weight.device))


def pruned_parts(checkpoint: Path) -> frozenset[str]:
    """The parts of a checkpoint folder that were removed. Raises UserError for a marker that is not JSON."""
    marker = optional_json(checkpoint / PRUNED)
    return frozenset() if marker is None else frozenset(marker["parts"])


def refuse_pruned(checkpoint: Path, part: str) -> None:
    """UserError with the command that makes the checkpoint again if `part` was removed."""
    if part in pruned_parts(checkpoint):
        raise UserError(
            f"{checkpoint}: its {part}/ was pruned to save space; take a later checkpoint{_remaking(checkpoint)} "
            "(checkpoints.keep and checkpoints.export_every say which ones stay)"
        )


def _remaking(checkpoint: Path) -> str:
    """How to make the checkpoint of a run again, from the last one before it that is whole; empty for other folders.

    A finished checkpoint is never trained again, so its folder goes first. `checkpoints.keep=0`: the stage would prune
    its own output again.
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


def _checkpoint_around(model: Path | str) -> Path | None:
    """The checkpoint whose `model/` folder this is."""
    folder = Path(model)
    return folder.parent if folder.name == MODEL and (folder.parent / MANIFEST).is_file() else None


def _checkpoint_records(checkpoint: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 by path in the checkpoint. Raises UserError if they are missing."""
    found = read_records(checkpoint / FILES)
    if found is None:
        raise UserError(f"{checkpoint / FILES}: missing, so its files cannot be verified; {_train_again(checkpoint)}")
    return found


def _train_again(checkpoint: Path) -> str:
    """The remedy for a damaged checkpoint."""
    return f"remove its checkpoint and call {making_call(checkpoint)} again, or take another checkpoint"


def model_records(model: Path | str) -> dict[str, dict[str, Any]] | None:
    """Size and SHA-256 by path in the model folder, None if nothing was recorded."""
    checkpoint = _checkpoint_around(model)
    if checkpoint is None:
        return read_records(Path(model) / ORIGIN)
    return {name: dict(one) for name, one in below(_checkpoint_records(checkpoint), MODEL).items()}


def model_digest(folder: Path) -> str:
    """SHA-256 over names and contents of a model folder's files, which are read only if nothing was recorded."""
    return joint_digest(model_records(folder) or record_files(folder))


def verify_model(model: Path | str, parts: Collection[str] = (MODEL, ADAPTER), *, weights: bool = True) -> None:
    """Raises UserError if a file of a model changed: of these parts of its checkpoint and the base of its adapter, or
    of a plain folder. Without `weights`, only configuration and tokenizer count.
    """
    checkpoint, base = _checkpoint_around(model), base_of(model)

    def wanted(name: str) -> bool:
        return (checkpoint is None or name.partition("/")[0] in parts) and (weights or not has_weights(name))

    if checkpoint is not None:
        records, remedy = _checkpoint_records(checkpoint), _train_again(checkpoint)
        verify_recorded(checkpoint, records, remedy=remedy, wanted=wanted)
    elif (found := model_records(model)) is not None:
        verify_recorded(Path(model), found, remedy=REMAKE, wanted=wanted)
    if checkpoint is not None and base is not None and weights:
        own, remedy = base.files.__contains__, f"{checkpoint} {OVER}"
        verify_recorded(base.folder, base.files, remedy=remedy, wanted=own)
