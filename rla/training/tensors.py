"""Named tensors in safetensors files: one file, or numbered files of a few GiB, of which one is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rla.errors import UserError

FILE_BYTES = 4 << 30


def save_tensors(
    named: Iterable[tuple[str, Tensor]], folder: Path, stem: str, *, write: bool = True, file_bytes: int = FILE_BYTES
) -> None:
    """Write `<stem>.safetensors`, or `<stem>-00000.safetensors` and so on if they are larger than `file_bytes`.

    Without `write` the tensors are made and dropped: making them may be a collective call of all ranks.
    """
    part: dict[str, Tensor] = {}
    count = size = 0
    if write:
        folder.mkdir(parents=True, exist_ok=True)
    for name, value in named:
        if not write:
            continue
        if part and size + value.nbytes > file_bytes:
            save_file(part, folder / f"{stem}-{count:05d}.safetensors")
            part, size, count = {}, 0, count + 1
        part[name] = value.cpu().contiguous()
        size += value.nbytes
    if write:
        save_file(part, folder / (f"{stem}-{count:05d}.safetensors" if count else f"{stem}.safetensors"))


def save_weights(model: nn.Module, folder: Path, stem: str, *, dtype: torch.dtype | None = None) -> None:
    """Save all parameters by name (tied ones once), converted to `dtype` if one is given."""
    named = ((name, value.detach().to(dtype or value.dtype)) for name, value in model.named_parameters())
    save_tensors(named, folder, stem)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a memory-mapped safetensors file: only the part that is read is copied."""

    file: Path
    name: str

    def read(self) -> Tensor:
        with safe_open(self.file, framework="pt") as content:
            value: Tensor = content.get_tensor(self.name)
        return value

    def rows(self, low: int, high: int) -> Tensor:
        """Rows `low` to `high` (exclusive) of the first dimension."""
        with safe_open(self.file, framework="pt") as content:
            value: Tensor = content.get_slice(self.name)[low:high]
        return value


class TensorFiles:
    """The tensors that `save_tensors` wrote, read one by one. Raises UserError for an unreadable file.

    `shapes` holds the shape of each tensor by name.
    """

    def __init__(self, folder: Path, stem: str, *, required: bool = False) -> None:
        self.path = folder / f"{stem}.safetensors"
        self.files = [self.path] if self.path.is_file() else sorted(folder.glob(f"{stem}-[0-9]*.safetensors"))
        if required and not self.files:
            raise UserError(f"{self.path}: missing; the train state is incomplete, take an earlier checkpoint")
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._stored: dict[str, StoredTensor] = {}
        for file in self.files:
            try:
                with safe_open(file, framework="pt") as content:
                    for name in content.keys():  # noqa: SIM118 (not a mapping)
                        self._stored[name] = StoredTensor(file, name)
                        self.shapes[name] = tuple(content.get_slice(name).get_shape())
            except (SafetensorError, OSError) as error:
                raise UserError(f"{file}: cannot be read ({error}); take an earlier checkpoint") from error

    def __contains__(self, name: str) -> bool:
        return name in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __getitem__(self, name: str) -> StoredTensor:
        return self._stored[name]
