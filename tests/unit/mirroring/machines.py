"""Mirrors of one run, on a store in memory; each stands for a machine."""

from __future__ import annotations

import os

import pytest

from rla.mirroring.mirror import Mirror
from rla.mirroring.sender import kept_on_store

URL = "memory://bucket/run"
PART, OTHER, MANIFEST = "1/scores/part-00000.parquet", "1/scores/part-00001.parquet", "1/scores/_manifest.parquet"


def machine(name: str) -> Mirror:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLA_MIRRORS", name)
        return Mirror(URL)


def write(mirror: Mirror, key: str, text: str) -> None:
    path = mirror.folder / key
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    if path.stat().st_mtime_ns <= before:  # a coarse clock
        os.utime(path, ns=(before + 1, before + 1))


def read(mirror: Mirror, key: str) -> str:
    return (mirror.folder / key).read_text()


def made(mirror: Mirror, **files: str) -> None:
    """A call that makes a shard of these parts and its manifest."""
    with kept_on_store(mirror, ["1/scores"]):
        for name, text in files.items():
            write(mirror, {"part": PART, "other": OTHER}[name], text)
        write(mirror, MANIFEST, "+".join(files.values()))
