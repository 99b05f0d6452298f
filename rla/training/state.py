"""The train state, and how a killed stage goes on from the last state that it saved.

A state folder holds `weights`, `moments` (`.safetensors`; large ones in numbered files), `rng.safetensors` and
`state.json`: named tensors and numbers without pickles or paths, so a folder can be moved, and read by another number
of processes than wrote it. Weights are the fp32 master weights: at a learning rate of 1e-6 a bf16 hand-off between
iterations would lose most of each update. With LoRA the files hold the adapter alone.

`<out>.partial/update-000004/` holds the state after four updates and their metrics. A new save is written aside and
renamed before the old one goes, so a whole one is there at any instant. It belongs to exactly one input: another
checkpoint, sequence, parameter or seed starts afresh.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import shutil
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rla.config.load import effective
from rla.errors import UserError
from rla.models.checkpoint import ADAPTER, ADAPTER_SETTINGS, ADAPTER_WEIGHTS, Checkpoint, model_digest
from rla.store.digests import KEY, read_records, verify_recorded
from rla.store.record import optional_json, read_json, sealed
from rla.training.checkpoints import COUNTS, FILE_BYTES, publish, record_together
from rla.training.shared import ADAM_KEYS, Backend, Ranks, StoredTensor

if TYPE_CHECKING:
    from rla.config.training import TrainConfig

log = logging.getLogger(__name__)

WEIGHTS, MOMENTS, RNG = "weights", "moments", "rng"
STAGE, LOCK = "stage.json", "lock"
REPEATED = 2.0  # seconds after which a second Ctrl-C is meant; one key press may arrive twice
LEAST_SHARE = 10  # saving takes at most a tenth of the time: a large model's save takes minutes


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
        self.backend.reshard()
        named, write = trainable(self.model), self.ranks.first
        weights = ((name, self.backend.weight(parameter)) for name, parameter in named.items())
        moments = (
            (f"{key}.{name}", value)
            for name, parameter in named.items()
            for key, value in self.backend.moments(parameter).items()
        )
        save_tensors(weights, folder, WEIGHTS, write=write)
        save_tensors(moments, folder, MOMENTS, write=write)
        save_tensors(random_state().items(), folder, RNG, write=write)
        if write:
            (folder / COUNTS).write_text(json.dumps({"updates": self.updates}) + "\n")

    def load(self, folder: Path) -> None:
        """Load the files that `save` wrote. A folder with weights alone (a warm start) leaves the optimizer new.

        Raises UserError for a file that cannot be read or belongs to another model.
        """
        self.load_weights(folder, WEIGHTS)
        moments = TensorFiles(folder, MOMENTS)
        if not moments.files:
            return
        for name, parameter in trainable(self.model).items():
            stored = {key: moments[f"{key}.{name}"] for key in ADAM_KEYS if f"{key}.{name}" in moments}
            if stored:
                self.backend.set_moments(parameter, stored)
        random = TensorFiles(folder, RNG, required=True)
        set_random_state({name: random[name].read() for name in random})
        try:
            self.updates = int(json.loads((folder / COUNTS).read_text())["updates"])
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(
                f"{folder / COUNTS}: does not say how many updates were made; make its checkpoint again"
            ) from None

    def load_weights(self, folder: Path, stem: str) -> None:
        """Load the parameters that train. Raises UserError if names or shapes differ."""
        self.backend.reshard()
        for parameter, stored in _stored_parameters(self.model, TensorFiles(folder, stem, required=True)):
            self.backend.set_weight(parameter, stored)


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _stored_parameters(model: nn.Module, files: TensorFiles) -> Iterator[tuple[nn.Parameter, StoredTensor]]:
    """Each parameter that trains and its stored values. Raises UserError if names or shapes differ.

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
        yield parameter, files[name]


def full_shape(parameter: nn.Parameter) -> tuple[int, ...]:
    """The shape of a parameter, which ZeRO 3 may have emptied."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def load_state_weights(model: nn.Module, folder: Path, stem: str) -> None:
    """Copy stored weights into a model that this process holds whole. Raises UserError as `_stored_parameters` does."""
    with torch.no_grad():
        for parameter, stored in _stored_parameters(model, TensorFiles(folder, stem, required=True)):
            parameter.copy_(stored.read())


def random_state() -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: dict[str, Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


@dataclass(slots=True, kw_only=True)
class TrainingProgress:
    """The saves of a stage that makes `out`. `digest` identifies its input, and is set once that has been read."""

    out: Path
    interval_s: float
    digest: str = ""
    last: float = field(default_factory=time.monotonic)  # when it saved last
    took: float = 0.0  # seconds of the last save

    @property
    def folder(self) -> Path:
        return self.out.with_name(f"{self.out.name}.partial")

    def begin(self, *, loading_s: float) -> None:
        """The updates start now: a save spares nothing that came before. The first is expected to take `loading_s`."""
        self.last, self.took = time.monotonic(), loading_s

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
        aside = place.with_suffix(".tmp")
        if state.ranks.first:
            shutil.rmtree(aside, ignore_errors=True)
        state.save(aside)
        records = record_together(aside, state.ranks)
        if state.ranks.first:
            content = {"digest": self.digest, "history": list(history), KEY: records}
            (aside / STAGE).write_text(json.dumps(sealed(content)))
            publish(aside, place)
            for older in self._saved()[:-1]:
                shutil.rmtree(older)
        self.last = time.monotonic()
        self.took = self.last - started

    def restore(self, state: TrainState) -> list[dict[str, Any]]:
        """Load the last save of this input; returns the metrics of its updates, an empty list if nothing was saved.

        A collective call of all ranks. A save with a damaged file is removed with a warning.
        """
        for place in reversed(state.ranks.broadcast(self._saved())):
            try:
                state.ranks.check(partial(self._verify, place, share=(state.ranks.rank, state.ranks.world)))
            except UserError as error:
                if state.ranks.first:
                    why = str(error).partition(";")[0]
                    log.warning("%s cannot be resumed, so its updates are made again: %s", place, why)
                    shutil.rmtree(place)
                continue
            content = read_json(place / STAGE)
            if content.get("digest") == self.digest:
                state.load(place)
                return list(content["history"])
        state.ranks.barrier()
        if state.ranks.first:
            for place in self.folder.glob("update-*"):  # of another input
                shutil.rmtree(place)
        return []

    def _verify(self, place: Path, *, share: tuple[int, int]) -> None:
        """Raises UserError if a file of a save of this input is damaged."""
        content = optional_json(place / STAGE)
        if content is not None and content.get("digest") != self.digest:
            return
        records = read_records(place / STAGE)
        if records is None:
            raise UserError(f"{place / STAGE}: records no files")
        verify_recorded(place, records, remedy="", wanted=lambda name: name != STAGE, share=share)

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

    def wait_until_unlocked(self, *, seconds: float) -> None:
        """Wait for a process that still trains `out`, such as a lost worker; `seconds` at most."""
        until = time.monotonic() + seconds
        while (lock := self.folder / LOCK).exists() and time.monotonic() < until:
            with suppress(OSError), lock.open("r+") as held:  # locked, or removed by now
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.2)

    def final_folder(self, *, clean: bool) -> Path:
        """The folder for the state at the end; `clean`: without leftovers of an earlier attempt."""
        for name in ("last", ADAPTER) if clean else ():
            shutil.rmtree(self.folder / name, ignore_errors=True)
        return self.folder / "last"

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _saved(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("update-*") if not path.suffix)


def stage_digest(previous: Checkpoint, sequences: str, *, config: TrainConfig, temperature: float, seed: int) -> str:
    """SHA-256 of everything that the result of a stage depends on; `sequences`: their own digest."""
    model = Path(previous.model)
    weights = previous.digest or (model_digest(model) if model.is_dir() else str(model))
    settings = {
        "config": effective(config, asdict(config)),
        "temperature": temperature,
        "seed": seed,
        "updates": previous.updates,
    }
    return hashlib.sha256(json.dumps([weights, sequences, settings], sort_keys=True).encode()).hexdigest()


class DeferredInterrupts:
    """Inside the block Ctrl-C is noted, not raised: the loop asks for it when its state is whole. A second one, seconds
    later, ends the process at once. A launcher ends its ranks by SIGTERM, so with several ranks that counts as well.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.asked = False
        self._ranks, self._since = ranks, 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> DeferredInterrupts:
        if current_thread() is main_thread():
            numbers = [signal.SIGINT] if self._ranks.world == 1 else [signal.SIGINT, signal.SIGTERM]
            self._before = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def on_any_rank(self) -> bool:
        """Whether any rank was interrupted. A collective call of all ranks."""
        return any(self._ranks.gather(self.asked))

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked and time.monotonic() - self._since > REPEATED:
            signal.default_int_handler(number, frame)
        self._since = self._since if self.asked else time.monotonic()
        self.asked = True


def save_tensors(
    named: Iterable[tuple[str, Tensor]], folder: Path, stem: str, *, write: bool = True, file_bytes: int = FILE_BYTES
) -> None:
    """Write `<stem>.safetensors`, or `<stem>-00000.safetensors` and so on if they are larger than `file_bytes`.

    Without `write` the tensors are made and dropped: making them may be a collective call of all ranks.
    """
    part: dict[str, Tensor] = {}
    count = size = 0
    if write:
        folder.mkdir(parents=True, exist_ok=True)
    for name, value in named:
        if not write:
            continue
        if part and size + value.nbytes > file_bytes:
            save_file(part, folder / f"{stem}-{count:05d}.safetensors")
            part, size, count = {}, 0, count + 1
        part[name] = value.cpu().contiguous()
        size += value.nbytes
    if write:
        save_file(part, folder / (f"{stem}-{count:05d}.safetensors" if count else f"{stem}.safetensors"))


def save_weights(model: nn.Module, folder: Path, stem: str, *, dtype: torch.dtype | None = None) -> None:
    """Save all parameters by name (tied ones once), converted to `dtype` if one is given."""
    named = ((name, value.detach().to(dtype or value.dtype)) for name, value in model.named_parameters())
    save_tensors(named, folder, stem)


class TensorFiles:
    """The tensors that `save_tensors` wrote, read one by one. Raises UserError for an unreadable file.

    `shapes` holds the shape of each tensor by name.
    """

    def __init__(self, folder: Path, stem: str, *, required: bool = False) -> None:
        self.path = folder / f"{stem}.safetensors"
        self.files = [self.path] if self.path.is_file() else sorted(folder.glob(f"{stem}-[0-9]*.safetensors"))
        if required and not self.files:
            raise UserError(f"{self.path}: missing; the train state is incomplete, take an earlier checkpoint")
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._stored: dict[str, StoredTensor] = {}
        for file in self.files:
            try:
                with safe_open(file, framework="pt") as content:
                    for name in content.keys():  # noqa: SIM118 (not a mapping)
                        self._stored[name] = StoredTensor(file, name)
                        self.shapes[name] = tuple(content.get_slice(name).get_shape())
            except (SafetensorError, OSError) as error:
                raise UserError(f"{file}: cannot be read ({error}); take an earlier checkpoint") from error

    def __contains__(self, name: str) -> bool:
        return name in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __getitem__(self, name: str) -> StoredTensor:
        return self._stored[name]


def write_adapter(state: Path, settings: Any) -> Path:
    """Write the adapter of a train state as peft does, in the folder `adapter` next to the state."""
    folder, files = state.with_name(ADAPTER), TensorFiles(state, WEIGHTS, required=True)
    settings.inference_mode = True
    settings.save_pretrained(folder)
    file = folder / ADAPTER_SETTINGS
    content = json.loads(file.read_text()) | {"target_modules": sorted(settings.target_modules)}  # a set has no order
    file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    named = {f"base_model.model.{name.replace('.default.', '.')}": files[name].read() for name in files}
    save_file(named, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    return folder
