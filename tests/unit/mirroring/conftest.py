"""A store in memory, empty at the start of each test."""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from rla.mirroring.object_store import ObjectStore
from tests.unit.mirroring.machines import URL


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    monkeypatch.chdir(tmp_path)
    yield ObjectStore(URL, pauses=())
    files.store.clear()
