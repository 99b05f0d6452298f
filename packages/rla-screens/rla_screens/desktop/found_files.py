"""A file that a verifier has looked at: its bytes, and what metrics that take paths ask of its place."""

from __future__ import annotations

from typing import Self


class FoundFile(bytes):
    """`name`: under which it lies, data of a task; `beside`: files in the same folder that a metric may look for."""

    name: str
    beside: tuple[FoundFile, ...]

    @classmethod
    def of(cls, data: bytes | None, *, name: str, beside: tuple[FoundFile, ...] = ()) -> Self | None:
        """None where there is no file."""
        if data is None:
            return None
        found = cls(data)
        found.name, found.beside = name, beside
        return found
