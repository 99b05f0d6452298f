"""What a stage makes goes to the store: parts as they are finished, records when the stage has ended.

Two machines that make the same thing at once are noticed: a file is not replaced in the store where somebody else has
put another content there since this mirror last knew it. Equal contents are no conflict.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread

from rla.errors import UserError
from rla.mirroring.keys import PARTIAL, is_loose, is_record
from rla.mirroring.mirror import Mirror, in_threads
from rla.mirroring.object_store import same_content

log = logging.getLogger(__name__)

INTERVAL = 1.0  # seconds between looks for finished parts


def send_changed(mirror: Mirror, before: set[str]) -> None:
    """Send all that is new or changed here, and remove in the store what was here `before` and is gone.

    Raises UserError where the store does not answer, and where another machine has made the same.
    """
    records = [key for key in mirror.present() if is_record(key) and not in_store(mirror, key)]  # their parts are there
    here = set(mirror.present())
    changed = [key for key in here if not is_record(key) and not in_store(mirror, key)]
    gone = [key for key in (before | mirror.sent) - here if key in mirror.journal.known]
    for key in [*(key for key in gone if is_record(key)), *(key for key in records if key in mirror.journal.known)]:
        remove_sent(mirror, key)
    in_threads(lambda key: send_one(mirror, key), changed)
    in_threads(lambda key: send_one(mirror, key), records)
    in_threads(lambda key: remove_sent(mirror, key), [key for key in gone if not is_record(key)])


def in_store(mirror: Mirror, key: str) -> bool:
    """Whether the file here is what was sent, or fetched."""
    known = mirror.journal.known.get(key)
    return known is not None and known.is_still(mirror.folder / key)


def send_one(mirror: Mirror, key: str) -> None:
    """One that has gone meanwhile is passed over. Raises UserError for what another machine has made."""
    path, known = mirror.folder / key, mirror.journal.known.get(key)
    found = mirror.store.version(key)
    with suppress(FileNotFoundError):
        stat = path.stat()
        if found is not None and (known is None or known.stamp != found.stamp):
            if same_content(path, found):
                mirror.journal.note(key, found.stamp, stat)
                return
            if not is_loose(key):
                raise UserError(
                    f"{mirror.url}/{key}: another machine has made this while this call ran, and differently; "
                    "end one of the two calls, then call the same again: it goes on with what the store has"
                )
        mirror.store.send(path, key)
        made = mirror.store.version(key)
        if made is not None:
            mirror.journal.note(key, made.stamp, stat)
            mirror.sent.add(key)


def remove_sent(mirror: Mirror, key: str) -> None:
    """Remove in the store what lay here and was sent or fetched; another version than that stays."""
    known, found = mirror.journal.known.get(key), mirror.store.version(key)
    if known is not None and found is not None and found.stamp == known.stamp:
        mirror.store.remove(key)
    mirror.journal.forget(key)


class Sender:
    """Sends finished parts below `watched` from a thread of its own while a stage works.

    An error is no reason to end the stage, because nothing is lost: `send_changed` meets it again, or it has passed.
    """

    def __init__(self, mirror: Mirror, watched: Sequence[str]) -> None:
        self.mirror, self.watched = mirror, watched
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
        here = [key for prefix in self.watched for key in self.mirror.present(prefix)]
        new = [key for key in here if not in_store(self.mirror, key)]
        for key in [key for key in new if not is_record(key)]:
            if self._ended.is_set():
                return
            send_one(self.mirror, key)
        for key in [key for key in new if is_record(key) and f"{PARTIAL}/" in key]:
            send_one(self.mirror, key)
        self._remove_older(set(here))

    def _remove_older(self, here: set[str]) -> None:
        """Saved updates that the stage has removed, once a newer one has been sent."""
        saved = [
            key for key in self.mirror.journal.known if f"{PARTIAL}/" in key and key.startswith(tuple(self.watched))
        ]
        if any(key in here for key in saved):
            for key in sorted(set(saved) - here, key=is_record, reverse=True):
                remove_sent(self.mirror, key)


@contextmanager
def kept_on_store(mirror: Mirror, watched: Sequence[str]) -> Iterator[None]:
    """What is made here in this block goes to the store, where the block fails, too.

    Raises UserError as `send_changed` does. Where the block fails itself, its own error stands.
    """
    before = set(mirror.present())
    try:
        with Sender(mirror, watched).working():
            yield
    except BaseException:
        with suppress(UserError):
            send_changed(mirror, before)
        raise
    send_changed(mirror, before)
