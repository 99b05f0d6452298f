"""The pictures of a stage's sequences, on disk: each file once, read by its digest whenever a pass shows it.

An Arrow IPC file beside that of the sequences, mapped into memory. What a stage holds at any time are the pictures of
one forward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

SCHEMA = pa.schema([("digest", pa.string()), ("png", pa.binary())])


def write_image_file(file: Path, images: Iterable[tuple[str, bytes]]) -> None:
    """Store (digest, PNG) pairs as they come, one at a time in memory."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(".tmp")
    with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for digest, png in images:
            writer.write_batch(pa.record_batch([[digest], [png]], schema=SCHEMA))
    aside.rename(file)


class StoredImages(Mapping[str, bytes]):
    """What `write_image_file` wrote, by digest."""

    def __init__(self, file: Path) -> None:
        self._map = pa.memory_map(str(file))
        self._reader = pa.ipc.open_file(self._map)
        count = self._reader.num_record_batches
        self._places = {self._reader.get_batch(place)["digest"][0].as_py(): place for place in range(count)}

    def __getitem__(self, digest: str) -> bytes:
        png: bytes = self._reader.get_batch(self._places[digest])["png"][0].as_py()
        return png

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def close(self) -> None:
        self._map.close()
