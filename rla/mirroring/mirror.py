"""The mirror of a run: an ordinary run folder that is brought to what the store has, and the store to what it has.

A store knows no rename of a folder, so the order keeps a reader safe, in both directions: the record of a folder (a
shard's manifest, `checkpoint.json`) goes before anything beside it changes, and comes after all of that is there.

|                              | the file here is as it was transferred | it has changed, or was never transferred |
|---|---|---|
| the store has that version   | nothing                                | it is newer, and is sent                 |
| the store has another one    | fetched                                | fetched, unless the content is the same  |
| the store has none           | removed, where a record beside it is in the store; else sent again | sent |

What is missing here is fetched. A saved update counts as one that lies beside the record of the checkpoint, and of any
later saved update. In the store only what was sent from here, or fetched, is ever removed, and only when a
stage has removed it here (`rla.mirroring.sending`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rla.mirroring.journal import Journal
from rla.mirroring.keys import PARTIAL, SAVED, belongs, folders_above, is_record
from rla.mirroring.object_store import ObjectStore, Stored
from rla.mirroring.urls import mirror_folder
from rla.store.atomic import unwritable, write_atomic
from rla.store.removing import remove_file

AT_ONCE = 8  # transfers
Given = TypeVar("Given")
Made = TypeVar("Made")
Wanted = Callable[[str], bool]


def everything(key: str) -> bool:
    return True


@dataclass(kw_only=True)
class Changes:
    """What has to be done for the mirror to be what the store has."""

    bring: dict[str, Stored] = field(default_factory=dict)
    drop: list[str] = field(default_factory=list)
    same: dict[str, Stored] = field(default_factory=dict)  # of these the mirror did not know that they are
    again: list[str] = field(default_factory=list)  # the store has lost them


class Mirror:
    """`sent`: the keys that this process has sent."""

    def __init__(self, url: str, *, store: ObjectStore | None = None) -> None:
        self.url, self.folder = url, mirror_folder(url)
        self.sent: set[str] = set()
        self.store = ObjectStore(url) if store is None else store
        try:
            self.journal = Journal(self.folder, url)
        except OSError as error:
            raise unwritable(self.folder, error) from None

    def fetch(self, prefixes: Iterable[str] = ("",), *, wanted: Wanted = everything) -> list[str]:
        """Bring files and folders of the run here as the store has them; the keys that came. `wanted`: of these alone.

        Raises UserError where the store has no such bucket or does not answer, and for an unsafe name.
        """
        with self.journal.alone():
            chosen = list(prefixes)
            there: dict[str, Stored] = {}
            for found in in_threads(self.store.listed, chosen):
                there |= {key: one for key, one in found.items() if belongs(key) and wanted(key)}
            if not there:
                self.store.check()
            here = {key for prefix in chosen for key in self.present(prefix) if wanted(key)}
            changes = self._changes(there, here)
            self._drop_records(changes, there, here)
            for key in changes.drop:
                remove_file(self.folder / key)
                self.journal.forget(key)
            for key in changes.again:
                self.journal.forget(key)
            for key, one in changes.same.items():
                self.journal.note(key, one.stamp, (self.folder / key).stat())
            for group in (False, True):
                in_threads(self._bring, [item for item in changes.bring.items() if is_record(item[0]) is group])
            return list(changes.bring)

    def _changes(self, there: dict[str, Stored], here: set[str]) -> Changes:
        changes, known = Changes(), self.journal.known
        changes.bring = {key: one for key, one in there.items() if key not in here}
        # With the same stamp it is unchanged, or newer here.
        asked = [key for key in here & there.keys() if key not in known or known[key].stamp != there[key].stamp]
        same = in_threads(lambda key: self.store.holds(key, self.folder / key, there[key]), asked)
        for key, is_same in zip(asked, same, strict=True):
            (changes.same if is_same else changes.bring)[key] = there[key]
        recorded = {folder for key in there if is_record(key) for folder in folders_above(key)[:1]}
        for key in here - there.keys():
            before = known.get(key)
            if before is None or not before.is_still(self.folder / key):
                continue
            gone = any(folder in recorded for folder in folders_above(key)) or is_superseded(key, recorded)
            (changes.drop if gone else changes.again).append(key)
        return changes

    def _drop_records(self, changes: Changes, there: dict[str, Stored], here: set[str]) -> None:
        """Of folders of which something is replaced: a call that is killed in here leaves none beside other parts."""
        touched = {folder for key in (*changes.bring, *changes.drop) if key in here for folder in folders_above(key)}
        for key in sorted(here):
            if is_record(key) and folders_above(key)[0] in touched:
                remove_file(self.folder / key)
                if key in there:
                    changes.bring[key] = there[key]

    def _bring(self, item: tuple[str, Stored]) -> None:
        key, one = item
        path = self.folder / key
        write_atomic(path, lambda temporary: self.store.bring(key, temporary))
        stat = path.stat()
        if stat.st_size != one.size:  # it was made anew since it was listed: the next fetch looks again
            return
        self.journal.note(key, one.stamp, stat)

    def present(self, prefix: str = "") -> Iterator[str]:
        """The keys of the finished files here, of all, or of one file or folder."""
        top = self.folder / prefix
        for path in [top] if top.is_file() else files_below(top):
            key = path.relative_to(self.folder).as_posix()
            if belongs(key):
                yield key


def is_superseded(key: str, recorded: set[str]) -> bool:
    """Whether it is of a saved update, and the store has a later one, or what the training has made in the end.

    `recorded`: the folders whose records are in the store.
    """
    made, mark, inside = key.partition(f"{PARTIAL}/")
    if not mark:
        return False
    later = (folder.removeprefix(f"{made}{PARTIAL}/") for folder in recorded if folder.startswith(f"{made}{PARTIAL}/"))
    return made in recorded or any(inside.partition("/")[0] < name for name in later if SAVED.fullmatch(name))


def files_below(top: Path) -> Iterator[Path]:
    """What is not hidden; a folder that goes meanwhile has none."""
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (path for name in names if (path := Path(folder, name)).is_file())


def in_threads(call: Callable[[Given], Made], items: Sequence[Given]) -> list[Made]:
    """The results in order, of a few calls at a time. The first error ends it when those that run have ended."""
    if len(items) < 2:
        return [call(item) for item in items]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(call, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
