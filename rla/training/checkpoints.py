"""Checkpoint folders and the train state: finding, opening and writing them, and resuming a killed stage.

`rla.models.checkpoint` lists the files of a folder, and readers of `model/` open it with `open_checkpoint`. Training
goes on from `state/`. The start of a run has none: a plain model folder, a warm start, a model that was carried over.

    weights      the fp32 master weights, or the adapter with LoRA: at a learning rate of 1e-6 a bf16 hand-over between
                 iterations would lose most of each update
    moments      Adam's state
    rng          the state of the random generators
    reference    the run's first weights (with LoRA the base is the reference)
    state.json   the number of optimizer steps over all iterations

Tensors are stored by name in `.safetensors` files, large ones in numbered files, so another number of processes can
read them. A checkpoint is written whole or not at all. One that is replaced stays until the new one is complete.

`<out>.partial/update-000004/` holds the state after four updates and their metrics. A new save is renamed before the
old one is removed, so a whole one exists at any instant. It belongs to exactly one input: another checkpoint, sequence,
parameter or seed starts over.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rla import __version__
from rla.config.load import effective
from rla.errors import UserError
from rla.models.checkpoint import (
    ADAPTER,
    ADAPTER_SETTINGS,
    ADAPTER_WEIGHTS,
    BASE,
    HISTORY,
    MANIFEST,
    METRICS,
    MODEL,
    PARTS,
    PRUNED,
    REFERENCE,
    STATE,
    VERSION,
    Checkpoint,
    base_of,
    model_digest,
    open_checkpoint,
    refuse_pruned,
    verify_model,
    write_base,
)
from rla.models.load import base_under, copy_without_weights, write_merged
from rla.store.atomic import building, refuse_unlike, settle, take_place, write_json
from rla.store.manifest import (
    FILES,
    PARAMETERS,
    below,
    joint_digest,
    read_json,
    read_records,
    record_files,
    sealed,
    unlike_text,
    verify_recorded,
    write_records,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rla.config.training import TrainConfig
    from rla.training.shared import Backend, Ranks

log = logging.getLogger(__name__)

COUNTS = "state.json"
WEIGHTS, MOMENTS, RNG = "weights", "moments", "rng"
STAGE, LOCK = "stage.json", "lock"  # of the saves of a stage
FILE_BYTES = 4 << 30  # of a file of tensors, at most: several are digested in parallel, one large file is not
LEAST_SHARE = 10  # saving takes at most a tenth of the time: a large model's save takes minutes


def finished_checkpoint(
    out: Path, marker: dict[str, Any], *, overwrite: bool, folders: Mapping[str, str] | None = None
) -> bool:
    """Whether `out` is a complete checkpoint of the origin in `marker`.

    With `overwrite` a checkpoint of another origin may be replaced, and stays until the new one is complete. Raises
    UserError for another origin otherwise, for a folder without a record, and for one with foreign files.
    """
    settle(out)  # a killed call may have begun to replace it
    manifest = out / MANIFEST
    if not manifest.exists():
        refuse_existing(out)
        return False
    try:
        content = read_json(manifest)
    except UserError:
        damaged = overwrite and all(f'"{key}"'.encode() in manifest.read_bytes() for key in ("updates", "digest"))
        if not damaged:  # not ours at all
            raise
        content = {}
    if content and content.get("origin") == marker["origin"]:
        shutil.rmtree(out.with_name(f"{out.name}.partial"), ignore_errors=True)  # of a call killed at its very end
        return True
    if overwrite:
        refuse_existing(out, replace=True)
        return False
    found, wanted = (
        (one["origin"] if isinstance(one.get("origin"), dict) else {}) | {PARAMETERS: one.get(PARAMETERS)}
        for one in (content, marker)
    )
    unlike = unlike_text(found, wanted, folders=folders)
    raise UserError(f"{out}: a checkpoint {unlike}; rerun with --overwrite or choose another folder")


def open_to_train(source: Path | str) -> Checkpoint:
    """Raises UserError as `open_checkpoint` does, and if the train state was lost."""
    checkpoint = open_checkpoint(source)
    refuse_pruned(Path(source), STATE)
    if checkpoint.updates and checkpoint.state is None:
        raise UserError(
            f"{Path(source) / STATE}: its weights are missing, so training cannot go on from this checkpoint; restore "
            f"them or take another checkpoint (to start over from the exported weights, name {checkpoint.model})"
        )
    return checkpoint


def write_checkpoint(
    out: Path,
    *,
    previous: Checkpoint,
    model: PreTrainedModel | None,
    dtype: str,
    metrics: Mapping[str, Any],
    state: Path | None = None,
    updates: int = 0,
    adapter: Path | None = None,
    history: Sequence[Mapping[str, Any]] = (),
    record: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> None:
    """Write `out` atomically from a `model`, or an `adapter` folder in its place.

    The folder `state` moves into it, with the weights that become the reference if `previous` has none; without one the
    checkpoint is the start of a run. Converts `model` to `dtype`, so it cannot train further. Tokenizer files come from
    `previous`. `record` is added to the manifest. With `replace` a checkpoint at `out` makes room in the end.
    """
    refuse_existing(out, replace=replace)
    with building(out) as partial:
        if state is not None:
            state.rename(partial / STATE)
        copy_without_weights(previous.model, partial / MODEL)
        if adapter is not None:
            adapter.rename(partial / ADAPTER)
            write_base(partial / MODEL, base_under(previous.model), place=out / MODEL, adapter=partial / ADAPTER)
        elif model is not None:
            if state is not None and previous.reference is not None:
                for file in previous.reference.glob(f"{REFERENCE}*.safetensors"):
                    _link_or_copy(str(file), str(partial / STATE / file.name))
            model.to(getattr(torch, dtype)).save_pretrained(partial / MODEL, max_shard_size=FILE_BYTES)
        (partial / HISTORY).write_text("".join(json.dumps(one, allow_nan=False) + "\n" for one in history))
        _finish(partial, out, updates=updates, metrics=metrics, record=record)


def carry_over(
    previous: Checkpoint,
    out: Path,
    *,
    metrics: Mapping[str, Any],
    record: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> None:
    """Make `out` a checkpoint with the same weights and state, as hard links if the file system has them.

    Raises UserError if a file is not as `previous` recorded it: damage would spread with every link.
    """
    parts = {MODEL: previous.model, STATE: previous.state, ADAPTER: previous.adapter}
    verify_model(previous.model, [part for part, folder in parts.items() if folder is not None])
    base = base_of(previous.model)
    refuse_existing(out, replace=replace)
    with building(out) as partial:
        if base is not None and previous.adapter is None:  # no files to link
            write_merged(previous.model, partial / MODEL, dtype="float32")
            parts.pop(MODEL)
        for part, folder in parts.items():
            if folder is not None:
                ignored = shutil.ignore_patterns(".*", BASE) if part == MODEL else None
                shutil.copytree(folder, partial / part, copy_function=_link_or_copy, ignore=ignored)
        if base is not None and previous.adapter is not None:
            write_base(partial / MODEL, base, place=out / MODEL, adapter=partial / ADAPTER)
        (partial / HISTORY).touch()
        _finish(partial, out, updates=previous.updates, metrics=metrics, record=record)


def checkpoint_file(folder: Path) -> Callable[[Path], bool]:
    """Whether a path below the checkpoint `folder` is one that rla wrote: in its parts, the files that it recorded, or
    any file if there is no record.
    """
    recorded = None
    with suppress(UserError):  # a damaged record
        recorded = read_records(folder / FILES)

    def ours(path: Path) -> bool:
        if path.parts[0] in PARTS:
            return recorded is None or path.as_posix() in recorded
        return str(path) in {MANIFEST, METRICS, HISTORY, PRUNED, FILES}

    return ours


def refuse_existing(out: Path, *, replace: bool = False) -> None:
    """Raises UserError unless `out` is absent, empty, or a checkpoint of ours that is to be replaced."""
    if replace and (out / MANIFEST).is_file():
        refuse_unlike(out, checkpoint_file(out))
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists already: remove it or name another folder")


def _finish(
    partial: Path, out: Path, *, updates: int, metrics: Mapping[str, Any], record: Mapping[str, Any] | None
) -> None:
    """Write the records of a whole checkpoint, then give it its name."""
    files = {name: one for name, one in record_files(partial).items() if name.partition("/")[0] in PARTS}
    content = {VERSION: __version__, "updates": updates, "digest": joint_digest(below(files, MODEL)), **(record or {})}
    write_records(partial, files)
    (partial / MANIFEST).write_text(json.dumps(sealed(content), indent=2) + "\n")
    write_json(partial / METRICS, dict(metrics))
    _flush(*partial.rglob("*"), partial)
    take_place(partial, out, checkpoint_file(out))
    _flush(out.parent)


def _flush(*paths: Path) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


@dataclass(slots=True, kw_only=True)
class TrainState:
    """Everything that an update changes. `updates` counts optimizer steps over all iterations.

    `save` and `load` are collective calls of all ranks; rank 0 writes.
    """

    model: nn.Module
    backend: Backend
    ranks: Ranks
    updates: int = 0

    def save(self, folder: Path) -> None:
        """Write the state to `folder`, which is emptied first."""
        self.backend.reshard()
        named, place = trainable(self.model), folder if self.ranks.first else None
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            (place / COUNTS).write_text(json.dumps({"updates": self.updates}) + "\n")
        weights = ((name, self.backend.weight(parameter)) for name, parameter in named.items())
        moments = (
            (f"{key}.{name}", value)
            for name, parameter in named.items()
            for key, value in self.backend.moments(parameter).items()
        )
        save_tensors(weights, place, WEIGHTS)
        save_tensors(moments, place, MOMENTS)
        random = {"cpu": torch.get_rng_state()}
        random |= {"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {}
        save_tensors(random.items(), place, RNG)

    def load(self, folder: Path) -> None:
        """Load the files that `save` wrote. A folder with weights alone (a warm start) leaves the optimizer new.

        Raises UserError if it belongs to another model.
        """
        from rla.training.shared import ADAM_KEYS  # imports FSDP, which takes a second

        self.load_weights(folder, WEIGHTS)
        moments = TensorFiles(folder, MOMENTS)
        if not moments.shapes:
            return
        for name, parameter in trainable(self.model).items():
            stored = {key: moments.read(f"{key}.{name}") for key in ADAM_KEYS if f"{key}.{name}" in moments.shapes}
            if stored:
                self.backend.set_moments(parameter, stored)
        random = TensorFiles(folder, RNG)
        torch.set_rng_state(random.read("cpu"))
        if "cuda" in random.shapes and torch.cuda.is_available():
            torch.cuda.set_rng_state(random.read("cuda"))
        self.updates = read_json(folder / COUNTS)["updates"]

    def load_weights(self, folder: Path, stem: str) -> None:
        """Load the parameters that train. Raises UserError if names or shapes differ."""
        self.backend.reshard()
        for parameter, stored in _stored_parameters(self.model, TensorFiles(folder, stem)):
            self.backend.set_weight(parameter, stored)


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def full_shape(parameter: nn.Parameter) -> tuple[int, ...]:
    """The shape of a parameter, which ZeRO 3 may have emptied."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def _stored_parameters(model: nn.Module, files: TensorFiles) -> Iterator[tuple[nn.Parameter, Tensor]]:
    """Each parameter that trains and its stored value. Raises UserError if names or shapes differ.

    The files may also hold frozen parameters of the model, if an earlier stage trained them.
    """
    named = trainable(model)
    shapes = {
        name: full_shape(parameter)
        for name, parameter in model.named_parameters()
        if name in named or name in files.shapes
    }
    if files.shapes != shapes:
        raise UserError(
            f"{files.path}: weights of another model; give the checkpoint folder that this state belongs to"
        )
    for name, parameter in named.items():
        yield parameter, files.read(name)


def load_state_weights(model: nn.Module, folder: Path, stem: str) -> None:
    """Copy stored weights into a model that this process holds whole. Raises UserError as `_stored_parameters` does."""
    with torch.no_grad():
        for parameter, stored in _stored_parameters(model, TensorFiles(folder, stem)):
            parameter.copy_(stored)


class TensorFiles:
    """The tensors that `save_tensors` wrote, in files that are mapped into memory. `shapes`: of each tensor by name."""

    def __init__(self, folder: Path, stem: str) -> None:
        self.path = folder / f"{stem}.safetensors"
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._opened: dict[str, Any] = {}
        for file in [self.path] if self.path.is_file() else sorted(folder.glob(f"{stem}-[0-9]*.safetensors")):
            content = safe_open(file, framework="pt")
            for name in content.keys():  # noqa: SIM118 (not a mapping)
                self._opened[name] = content
                self.shapes[name] = tuple(content.get_slice(name).get_shape())

    def read(self, name: str) -> Tensor:
        value: Tensor = self._opened[name].get_tensor(name)
        return value


def save_tensors(
    named: Iterable[tuple[str, Tensor]], folder: Path | None, stem: str, *, file_bytes: int = FILE_BYTES
) -> None:
    """Write `<stem>.safetensors`, or `<stem>-00000.safetensors` and so on if they are larger than `file_bytes`.

    Without a folder the tensors are made and dropped: making them may be a collective call of all ranks.
    """
    part: dict[str, Tensor] = {}
    count = size = 0
    for name, value in named:
        if folder is None:
            continue
        if part and size + value.nbytes > file_bytes:
            save_file(part, folder / f"{stem}-{count:05d}.safetensors")
            part, size, count = {}, 0, count + 1
        part[name] = value.cpu().contiguous()
        size += value.nbytes
    if folder is not None:
        save_file(part, folder / (f"{stem}-{count:05d}.safetensors" if count else f"{stem}.safetensors"))


def write_adapter(state: Path, settings: Any) -> Path:
    """Write the adapter of a train state as peft does, in the folder `adapter` next to the state."""
    folder, files = state.with_name(ADAPTER), TensorFiles(state, WEIGHTS)
    settings.inference_mode = True
    settings.save_pretrained(folder)
    file = folder / ADAPTER_SETTINGS
    content = json.loads(file.read_text()) | {"target_modules": sorted(settings.target_modules)}  # a set has no order
    file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    named = {f"base_model.model.{name.replace('.default.', '.')}": files.read(name) for name in files.shapes}
    save_file(named, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    return folder


@dataclass(slots=True, kw_only=True)
class TrainingProgress:
    """The saves of a stage that makes `out`. `digest` identifies its input, and is set once that has been read."""

    out: Path
    interval_s: float = 60.0
    digest: str = ""
    last: float = field(default_factory=time.monotonic)  # when it saved last
    took: float = 0.0  # seconds of the last save

    @property
    def folder(self) -> Path:
        return self.out.with_name(f"{self.out.name}.partial")

    def save(self, state: TrainState, history: Sequence[dict[str, Any]], *, now: bool = False) -> None:
        """Save after an update if it is due: `interval_s`, and ten times as long as a save takes, after the last one.

        A collective call of all ranks: the clock of rank 0 decides. Before the first update there is nothing to save.
        """
        interval = self.interval_s and max(self.interval_s, LEAST_SHARE * self.took)
        place = self.folder / f"update-{len(history):06}"
        due = now or time.monotonic() - self.last >= interval
        if not state.ranks.broadcast(due and bool(history) and not place.exists()):
            return
        started = time.monotonic()
        partial = place.with_suffix(".tmp")
        state.save(partial)
        if state.ranks.first:
            write_json(partial / STAGE, {"digest": self.digest, "history": list(history)})
            write_records(partial, record_files(partial))
            _flush(*partial.rglob("*"), partial)
            partial.rename(place)
            _flush(self.folder)
            for older in self._saved()[:-1]:
                shutil.rmtree(older)
        self.last = time.monotonic()
        self.took = self.last - started

    def restore(self, state: TrainState) -> list[dict[str, Any]]:
        """Load the last save of this input; returns the metrics of its updates, an empty list if nothing was saved.

        A collective call of all ranks, right before the first update: the time until the next save starts here.
        """
        place, history = state.ranks.broadcast(self._resumable() if state.ranks.first else None)
        if place is not None:
            state.load(place)
        self.last = time.monotonic()
        return history

    def _resumable(self) -> tuple[Path | None, list[dict[str, Any]]]:
        """The last save of this input and its history. Saves of other inputs are removed, and damaged ones with a
        warning.
        """
        for place in reversed(self._saved()):
            try:
                records = read_records(place / FILES) or {}
                verify_recorded(place, records, remedy="", wanted=lambda name: name != FILES)
                content = read_json(place / STAGE)
                if content["digest"] == self.digest:
                    return place, list(content["history"])
            except UserError as error:
                why = str(error).partition(";")[0]
                log.warning("%s cannot be resumed, so its updates are made again: %s", place, why)
            shutil.rmtree(place)
        return None, []

    def _saved(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("update-*") if not path.suffix)

    @contextmanager
    def locked(self, *, first: bool) -> Iterator[None]:
        """Rank 0 holds the lock of the saves. Raises UserError if another process has it, such as a worker elsewhere
        whose parent was killed.
        """
        if not first:
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{self.out}: another process is training it; wait for it, or end it") from None
            try:
                yield
            finally:
                (self.folder / LOCK).unlink(missing_ok=True)
                with suppress(OSError):  # it may hold saves
                    self.folder.rmdir()

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def stage_digest(previous: Checkpoint, sequences: str, *, config: TrainConfig, temperature: float, seed: int) -> str:
    """SHA-256 of everything that the result of a stage depends on; `sequences`: their own digest."""
    weights = previous.digest or model_digest(Path(previous.model))
    settings = {
        "config": effective(config, asdict(config)),
        "temperature": temperature,
        "seed": seed,
        "updates": previous.updates,
    }
    return hashlib.sha256(json.dumps([weights, sequences, settings], sort_keys=True).encode()).hexdigest()
