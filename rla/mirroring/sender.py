"""Sending while a stage works: finished parts go to the store within seconds, from a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread

from rla.errors import UserError
from rla.mirroring.keys import PARTIAL, folders_above, is_below, is_record
from rla.mirroring.mirror import Mirror
from rla.mirroring.sending import MadeElsewhere, in_store, remove_sent, send_changed, send_one
from rla.store.slices import STARTED

log = logging.getLogger(__name__)

INTERVAL = 1.0  # seconds between looks for finished parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsent:
    """Keys. `parts`: of finished files. `saved`: records of saved updates. `replaced`: records in the store that the
    stage has removed or made anew. `older`: saved updates that it has removed after it had saved another one.
    """

    parts: list[str]
    saved: list[str]
    replaced: list[str]
    older: list[str]

    @property
    def anything(self) -> bool:
        return bool(self.parts or self.saved or self.replaced or self.older)


class Sender:
    """Sends finished parts below `watched` while a stage works.

    An error is no reason to end the stage, because nothing is lost: `send_changed` meets it again, or it has passed.
    """

    def __init__(self, mirror: Mirror, watched: Sequence[str]) -> None:
        self.mirror, self.watched = mirror, watched
        self._made_elsewhere: set[str] = set()
        self._ended = Event()
        self._thread = Thread(target=self._run, name="rla-sender", daemon=True)

    @contextmanager
    def working(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            try:
                self.look()
            except (UserError, OSError) as error:
                log.debug("finished parts are sent later: %s", error)

    def look(self) -> None:
        """Send what is finished now. A saved update of training is a folder that appears whole, record and all."""
        if not self._unsent().anything:
            return
        with self.mirror.journal.alone():  # a fetch removes records before it brings them again
            found = self._unsent()
            for key in found.replaced:
                remove_sent(self.mirror, key)
            for key in found.parts:
                if self._ended.is_set():
                    return
                self._send(key)
            for key in found.saved:
                if not any(is_below(one, folders_above(key)[0]) for one in self._made_elsewhere):
                    self._send(key)
            if any(f"{PARTIAL}/" in key and is_record(key) and in_store(self.mirror, key) for key in self._here()):
                for key in sorted(found.older, key=is_record, reverse=True):
                    remove_sent(self.mirror, key)

    def _here(self) -> set[str]:
        return {key for place in self.watched for key in self.mirror.present(place)}

    def _unsent(self) -> Unsent:
        here = self._here()
        new = [key for key in here - self._made_elsewhere if not in_store(self.mirror, key)]
        # Records are looked at last: of a part that is new by now the stage has removed them before.
        known = [key for key in list(self.mirror.journal.known) if any(is_below(key, place) for place in self.watched)]
        gone = [key for key in known if f"{PARTIAL}/" in key and key not in here]
        records = [key for key in known if is_record(key) and key not in gone]
        return Unsent(
            parts=sorted((key for key in new if not is_record(key)), key=first_what_parts_belong_to),
            saved=[key for key in new if is_record(key) and f"{PARTIAL}/" in key],
            replaced=[key for key in records if not in_store(self.mirror, key)],
            older=gone if any(f"{PARTIAL}/" in key for key in here) else [],
        )

    def _send(self, key: str) -> None:
        try:
            send_one(self.mirror, key)
        except MadeElsewhere as error:
            if not self._made_elsewhere:
                log.warning("%s", error)
            self._made_elsewhere.add(key)


def first_what_parts_belong_to(key: str) -> tuple[bool, str]:
    """An order in which no part is in the store, if the call is killed, without what says which call it belongs to."""
    return key.rpartition("/")[2] != STARTED, key


@contextmanager
def kept_on_store(mirror: Mirror, written: Sequence[str]) -> Iterator[None]:
    """What is made here in this block goes to the store, where the block fails, too.

    `written`: the files and folders that it writes. Raises UserError as `send_changed` does. Where the block fails
    itself, its own error stands.
    """
    before = set(mirror.present())
    try:
        with Sender(mirror, written).working():
            yield
    except BaseException:
        with suppress(UserError):
            send_changed(mirror, before, written)
        raise
    send_changed(mirror, before, written)
