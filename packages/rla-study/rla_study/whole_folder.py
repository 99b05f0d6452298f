"""A folder that is made whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rla.errors import UserError
from rla.store.atomic import building, lock_outputs


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """An empty folder that is renamed to `folder` when the block ends, and removed if it fails.

    Raises UserError if `folder` exists, or another call is making it.
    """
    with lock_outputs([folder]), building(folder) as partial:
        if folder.exists():
            raise UserError(f"{folder} exists already: remove it or name another folder")
        yield partial
        partial.rename(folder)
