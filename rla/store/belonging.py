"""Which parts in a folder stay where a call goes on: those that name its origin and are whole.

Slices of a shard look at the same folder at the same time. A part that one of them has read may be replaced by another
one before it is removed. So parts get their names, and lose them, under the lock of the folder, and a part is removed
only while its name is that of the file which was read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.aside import alone_in
from rla.store.parts import ForeignPart, check_belonging, checked_entry, shard_parts
from rla.store.removing import remove_file
from rla.store.sizes import counted

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Belonging:
    """What a part has to say of itself."""

    kind: str
    origin: str

    def kept(self, path: Path, tell: Tell, *, whole: bool, overwrite: bool) -> dict[str, Any] | None:
        """The entry of a part that stays (empty where it is not read as a `whole`), None for one that went."""
        seen = part_state(path)
        try:
            if whole:
                return checked_entry(path, self.kind, self.origin)
            check_belonging(path, self.kind, self.origin)
        except ForeignPart as error:
            if not overwrite:
                raise ForeignPart(f"{error}; remove it, or call the stage with --overwrite") from None
            said = f"{error}; it is removed"
        except UserError as error:
            said = made_again(error)
        else:
            return {}
        with alone_in(path.parent):
            if part_state(path) == seen:
                tell(said)
                remove_file(path)
                return None
        return self.kept(path, tell, whole=whole, overwrite=overwrite)  # another slice has put its part there

    def remove_others(self, folder: Path, tell: Tell) -> None:
        """Remove the parts of another origin, and damaged ones. The caller has the lock of the folder."""
        foreign = 0
        for path in shard_parts(folder):
            try:
                check_belonging(path, self.kind, self.origin)
                continue
            except ForeignPart:
                foreign += 1
            except UserError as error:
                tell(made_again(error))
            remove_file(path)
        if foreign:
            tell(f"{folder}: replaces {counted(foreign, 'part')} of another origin")


def made_again(error: UserError) -> str:
    """What is told of a part that is damaged."""
    return f"{str(error).partition(';')[0]}; it is made again"


def part_state(path: Path) -> tuple[int, ...] | None:
    """What differs once another file has got the name; its time tells where the system has given a number anew."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
