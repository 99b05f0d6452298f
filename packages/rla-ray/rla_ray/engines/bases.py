"""Digests of the bases that adapters lie over: equal for weights that an engine cannot tell apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from rla.errors import UserError
from rla.models.checkpoint import Parts


def base_digest(parts: Parts, *, dtype: str) -> str:
    """Equal for bases that an engine of this precision cannot tell apart, whichever files and precision they lie in.

    Raises UserError for a file that cannot be read.
    """
    if not parts.weights:
        return str(parts.base)
    return _weights_digest(tuple((str(file), *file_state(file)) for file in parts.weights), dtype)


def file_state(file: Path) -> tuple[int, int, int]:
    """Another one where a file was replaced or written to: node, time, size."""
    stat = file.stat()  # through links: the files of a run's first weights are the same in every iteration
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=64)
def _weights_digest(files: Sequence[tuple[str, int, int, int]], dtype: str) -> str:
    import torch
    from safetensors import SafetensorError, safe_open

    digests = {}
    for file, *_ in files:
        try:
            with safe_open(file, framework="pt") as content:
                for name in content.keys():  # noqa: SIM118 - not a mapping
                    tensor = content.get_tensor(name).to(getattr(torch, dtype)).contiguous()
                    data = tensor.flatten().view(torch.uint8).numpy()
                    digests[name] = hashlib.sha256(f"{list(tensor.shape)}".encode() + data.tobytes()).hexdigest()
        except (SafetensorError, OSError) as error:
            raise UserError(f"{file}: cannot be read ({error}); take an earlier checkpoint") from error
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
