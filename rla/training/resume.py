"""Progress inside a training stage, so that a kill costs a minute and not a stage.

`<out>.partial/update-000004/` holds the train state after four updates and their metrics. A new one is
written beside and renamed before the old one goes, so at any instant a whole one is there. It belongs to
exactly one input: another checkpoint, sequence, parameter or seed starts afresh.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any

from rla.config.load import effective
from rla.errors import UserError
from rla.models.checkpoint import ADAPTER, Checkpoint
from rla.models.verifying import model_digest
from rla.store.digests import KEY, read_records, verify_recorded
from rla.store.record import optional_json, read_json, sealed
from rla.training.checkpoints import publish, record_together

if TYPE_CHECKING:
    from rla.config.training import TrainConfig
    from rla.training.ranks import Ranks
    from rla.training.state import TrainState

log = logging.getLogger(__name__)

STAGE, LOCK = "stage.json", "lock"
AT_ONCE = 2.0  # seconds after which a second Ctrl-C is meant; the first may arrive by two ways
LEAST_SHARE = 10  # of a large model: a save may take minutes


@dataclass(slots=True, kw_only=True)
class TrainingProgress:
    """Saves after an update when `interval_s` seconds have passed since the last save, and ten times what it took.

    Before the first save the seconds count from `begin`, because a save spares nothing of what came before it.
    """

    out: Path
    interval_s: float
    digest: str = ""  # of the input; known once it has been read
    last: float = field(default_factory=time.monotonic)
    took: float = 0.0  # seconds of the last save

    @property
    def folder(self) -> Path:
        return self.out.with_name(f"{self.out.name}.partial")

    def begin(self, *, loading_s: float) -> None:
        """The updates start now. The first save is expected to take as long as loading did."""
        self.last, self.took = time.monotonic(), loading_s

    def save(self, state: TrainState, history: Sequence[dict[str, Any]], *, now: bool = False) -> None:
        """A common call of all ranks: the first one's clock decides, or `now`. Without an update nothing is saved."""
        interval = self.interval_s and max(self.interval_s, LEAST_SHARE * self.took)
        place = self.folder / f"update-{len(history):06}"
        due = now or time.monotonic() - self.last >= interval
        if not state.ranks.tell(due and bool(history) and not place.exists()):
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
        """The metrics of the updates that `state` has been brought to: none where nothing fitting was
        saved. A common call of all ranks. A save with a file that changed since is removed, with a warning.
        """
        for place in reversed(state.ranks.tell(self._saved())):
            try:
                state.ranks.agree(partial(self._verify, place, share=(state.ranks.rank, state.ranks.world)))
            except UserError as error:
                if state.ranks.first:
                    why = str(error).partition(";")[0]
                    log.warning("%s cannot be gone on from, so its updates are made again: %s", place, why)
                    shutil.rmtree(place)
                continue
            content = read_json(place / STAGE)
            if content.get("digest") == self.digest:
                state.load(place)
                return list(content["history"])
        return []

    def _verify(self, place: Path, *, share: tuple[int, int]) -> None:
        """UserError where a file of a save changed since it was written. One of another input is not looked at."""
        content = optional_json(place / STAGE)
        if content is not None and content.get("digest") != self.digest:
            return
        records = read_records(place / STAGE)
        if records is None:
            raise UserError(f"{place / STAGE}: records no files")
        verify_recorded(place, records, remedy="", wanted=lambda name: name != STAGE, share=share)

    @contextmanager
    def alone(self, *, first: bool) -> Iterator[None]:
        """No other call works on this output meanwhile, such as one whose parent was killed. Raises UserError."""
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
                with suppress(OSError):  # saved updates may lie there
                    self.folder.rmdir()

    def wait_until_free(self, *, seconds: float) -> None:
        """Until no process works on this output, such as a lost worker that is being ended; `seconds` at most."""
        until = time.monotonic() + seconds
        while (lock := self.folder / LOCK).exists() and time.monotonic() < until:
            with suppress(OSError), lock.open("r+") as held:  # locked, or gone meanwhile
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.2)

    def last_state(self, *, clean: bool) -> Path:
        """Where the state of the end is gathered; `clean`: without what an earlier attempt left."""
        for name in ("last", ADAPTER) if clean else ():
            shutil.rmtree(self.folder / name, ignore_errors=True)
        return self.folder / "last"

    def forget(self) -> None:
        """What was saved belongs to another input."""
        for place in self.folder.glob("update-*"):
            shutil.rmtree(place)

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _saved(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("update-*") if not path.suffix)


class HeldInterrupts:
    """Ctrl-C inside the block is noted, not raised: the loop asks for it where its state is whole. Another one, seconds
    later, ends the process at once. A launcher ends its ranks by SIGTERM, so that counts there, too.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.asked = False
        self._ranks, self._since = ranks, 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> HeldInterrupts:
        if current_thread() is main_thread():
            numbers = [signal.SIGINT] if self._ranks.world == 1 else [signal.SIGINT, signal.SIGTERM]
            self._before = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def heard(self) -> bool:
        """Whether any rank was interrupted. A common call of all ranks."""
        return any(self._ranks.gather(self.asked))

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked and time.monotonic() - self._since > AT_ONCE:
            signal.default_int_handler(number, frame)
        self._since = self._since if self.asked else time.monotonic()
        self.asked = True


def stage_digest(previous: Checkpoint, sequences: str, *, config: TrainConfig, temperature: float, seed: int) -> str:
    """SHA-256 of everything that the stage's result depends on; `sequences`: their own digest."""
    model = Path(previous.model)
    weights = previous.digest or (model_digest(model) if model.is_dir() else str(model))
    settings = {
        "config": effective(config, asdict(config)),
        "temperature": temperature,
        "seed": seed,
        "updates": previous.updates,
    }
    return hashlib.sha256(json.dumps([weights, sequences, settings], sort_keys=True).encode()).hexdigest()
