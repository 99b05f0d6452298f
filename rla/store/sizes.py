"""Bytes, counts and times for people, and what removing files gives back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path


def readable_bytes(count: float) -> str:
    """`107 GB`: three digits, decimal units as disks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.0f} TB" if count >= 99.5 else f"{count:.3g} TB"


def counted(number: int, noun: str) -> str:
    """`1 log`, `2 logs`: of nouns whose plural takes an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def freed_bytes(groups: Iterable[Iterable[Path]]) -> list[int]:
    """What the disk gets back from each group, if they are removed one after the other.

    A file with several hard links gives its space back with the last of them, or not at all.
    """
    seen: Counter[tuple[int, int]] = Counter()
    freed = []
    for group in groups:
        size = 0
        for path in group:
            found = path.lstat()
            seen[found.st_dev, found.st_ino] += 1
            size += found.st_size if seen[found.st_dev, found.st_ino] == found.st_nlink else 0
        freed.append(size)
    return freed


def duration(seconds: float) -> str:
    """8 s, 2 min 5 s, 1 h 3 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
