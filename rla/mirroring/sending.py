"""What a stage makes goes to the store: parts as they are finished, records when the stage has ended.

Two machines that make the same thing at once are noticed: a file is not replaced in the store where somebody else has
put another content there since this mirror last knew it. Equal contents are no conflict.

On the store only that is removed which a call may remove here: what lies below the folders that it writes, weights that
`pruned.json` names, and that marker once the weights are back. Other files of a mirror may go at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from rla.errors import UserError
from rla.mirroring.keys import PARTIAL, is_below, is_loose, is_record
from rla.mirroring.mirror import Mirror, in_threads
from rla.mirroring.object_store import Stored
from rla.store.pruned import PARTS, PRUNED, pruned_parts

WEIGHT = re.compile(rf"(.+)/({'|'.join(PARTS)})/.+")


class MadeElsewhere(UserError):
    """Another machine has put another content where this one would send its own."""

    def __init__(self, mirror: Mirror, key: str) -> None:
        super().__init__(
            f"{mirror.url}/{key}: another machine has made this while this call ran, and differently; "
            "end one of the two calls, then call the same again: it goes on with what the store has"
        )


def send_changed(mirror: Mirror, before: set[str], written: Sequence[str]) -> None:
    """Send all that is new or changed here, and remove in the store what was here `before`, is gone, and `may_go`.

    `written`: the files and folders that the call writes. Raises UserError where the store does not answer, and where
    another machine has made the same. No fetch brings files meanwhile: it removes records before it brings them again.
    """
    with mirror.journal.alone():
        records = [key for key in mirror.present() if is_record(key) and not in_store(mirror, key)]  # whole by now
        here = set(mirror.present())
        changed = [key for key in here if not is_record(key) and not in_store(mirror, key)]
        gone = [key for key in (before | mirror.sent) - here if key in mirror.journal.known]
        gone = [key for key in gone if may_go(mirror, key, written, back=here & mirror.sent.union(changed))]
        replaced = [key for key in gone if is_record(key) and f"{PARTIAL}/" not in key]
        replaced += [key for key in records if key in mirror.journal.known]
        if replaced:  # nothing is removed where another machine's parts would stay
            in_threads(lambda key: to_replace(mirror, key), [*changed, *records])
        for key in replaced:
            remove_sent(mirror, key)
        for group in (changed, records):
            in_threads(lambda key: send_one(mirror, key), group)
        rest = [key for key in gone if key in mirror.journal.known]
        for is_first in (True, False):  # saved updates go when what was made from them is there
            in_threads(lambda key: remove_sent(mirror, key), [key for key in rest if is_record(key) is is_first])


def may_go(mirror: Mirror, key: str, written: Sequence[str], *, back: Iterable[str]) -> bool:
    """Whether a file that is gone here has to go in the store. `back`: what this call has made here."""
    if any(is_below(key, place) for place in written):
        return True
    weight = WEIGHT.fullmatch(key)
    if weight is not None:
        return weight[2] in pruned_parts(mirror.folder / weight[1])
    folder, _, name = key.rpartition("/")
    return name == PRUNED and any(is_below(one, f"{folder}/{part}") for one in back for part in PARTS)


def in_store(mirror: Mirror, key: str) -> bool:
    """Whether the file here is what was sent, or fetched."""
    known = mirror.journal.known.get(key)
    return known is not None and known.is_still(mirror.folder / key)


def to_replace(mirror: Mirror, key: str) -> Stored | None:
    """What the store has where a file is to be sent. Equal content is noted as sent.

    Raises MadeElsewhere for what another machine has made.
    """
    path, known = mirror.folder / key, mirror.journal.known.get(key)
    found = mirror.store.version(key)
    if found is None or (known is not None and known.stamp == found.stamp):
        return found
    with suppress(FileNotFoundError):
        stat = path.stat()
        if mirror.store.holds(key, path, found):
            mirror.journal.note(key, found.stamp, stat)
        elif not is_loose(key):
            raise MadeElsewhere(mirror, key)
    return found


def send_one(mirror: Mirror, key: str) -> None:
    """One that has gone meanwhile is passed over. Raises MadeElsewhere for what another machine has made."""
    path, found = mirror.folder / key, to_replace(mirror, key)
    if in_store(mirror, key):
        return
    with suppress(FileNotFoundError):
        stat = path.stat()
        condition = {} if is_loose(key) else mirror.store.only_over(found, stat.st_size)
        if not mirror.store.send(path, key, condition):  # by another machine, or by a try of ours without an answer
            to_replace(mirror, key)
            if not in_store(mirror, key):
                raise MadeElsewhere(mirror, key)
            return
        made = mirror.store.version(key)
        if made is None:
            return
        unchanged = path.stat().st_mtime_ns == stat.st_mtime_ns
        if unchanged and not is_loose(key) and not mirror.store.holds(key, path, made, surely=not condition):
            raise MadeElsewhere(mirror, key)
        mirror.journal.note(key, made.stamp, stat)
        mirror.sent.add(key)


def remove_sent(mirror: Mirror, key: str) -> None:
    """Remove in the store what lay here and was sent or fetched; another version than that stays."""
    known, found = mirror.journal.known.get(key), mirror.store.version(key)
    if known is not None and found is not None and found.stamp == known.stamp:
        mirror.store.remove(key)
    mirror.journal.forget(key)
