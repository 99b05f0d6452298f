"""Named tensors in safetensors files: one file, or numbered ones of a few GiB: no more is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rla.errors import UserError

FILE_BYTES = 4 << 30


def save_tensors(
    named: Iterable[tuple[str, Tensor]], folder: Path, stem: str, *, write: bool = True, file_bytes: int = FILE_BYTES
) -> None:
    """Write `<stem>.safetensors`, or `<stem>-00000.safetensors` and on where they are larger than `file_bytes`.

    Without `write` the tensors are made and dropped: making them may be a call that all ranks share.
    """
    parts: list[Path] = []
    held: dict[str, Tensor] = {}
    size = 0
    if write:
        folder.mkdir(parents=True, exist_ok=True)
    for name, value in named:
        if not write:
            continue
        if held and size + value.nbytes > file_bytes:
            parts.append(_save(held, folder / f"{stem}-{len(parts):05d}.safetensors"))
            held, size = {}, 0
        held[name] = value.cpu().contiguous()
        size += value.nbytes
    if write:
        _save(held, folder / (f"{stem}-{len(parts):05d}.safetensors" if parts else f"{stem}.safetensors"))


def _save(tensors: dict[str, Tensor], file: Path) -> Path:
    save_file(tensors, file)
    return file


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a safetensors file, which is mapped into memory: only what is read is copied."""

    file: Path
    name: str

    def read(self) -> Tensor:
        with safe_open(self.file, framework="pt") as content:
            value: Tensor = content.get_tensor(self.name)
        return value

    def rows(self, low: int, high: int) -> Tensor:
        """Of the first dimension, `low` to `high`, which is not among them."""
        with safe_open(self.file, framework="pt") as content:
            value: Tensor = content.get_slice(self.name)[low:high]
        return value


class TensorFiles:
    """The tensors that `save_tensors` wrote, read one by one. Raises UserError for a file that cannot be read."""

    def __init__(self, folder: Path, stem: str, *, required: bool = False) -> None:
        self.folder, self.stem = folder, stem
        whole = folder / f"{stem}.safetensors"
        self.files = [whole] if whole.is_file() else sorted(folder.glob(f"{stem}-[0-9]*.safetensors"))
        if required and not self.files:
            raise UserError(f"{whole}: missing; the train state is incomplete, take an earlier checkpoint")
        self._where: dict[str, Path] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for file in self.files:
            try:
                with safe_open(file, framework="pt") as content:
                    for name in content.keys():  # noqa: SIM118 (no mapping)
                        self._where[name] = file
                        self._shapes[name] = tuple(content.get_slice(name).get_shape())
            except (SafetensorError, OSError) as error:
                raise UserError(f"{file}: cannot be read ({error}); take an earlier checkpoint") from error

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return dict(self._shapes)

    def find(self, name: str) -> StoredTensor:
        return StoredTensor(self._where[name], name)

    def read(self, name: str) -> Tensor:
        return self.find(name).read()
