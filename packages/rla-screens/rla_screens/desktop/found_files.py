"""A file that a verifier has read: its bytes, and the name and neighbours that metrics which take paths need."""

from __future__ import annotations

from typing import Self


class FoundFile(bytes):
    """`name`: its file name, which comes from the task's data. `beside`: files next to it that a metric may read."""

    name: str
    beside: tuple[FoundFile, ...]

    @classmethod
    def of(cls, data: bytes | None, *, name: str, beside: tuple[FoundFile, ...] = ()) -> Self | None:
        """None if there is no file."""
        if data is None:
            return None
        found = cls(data)
        found.name, found.beside = name, beside
        return found
