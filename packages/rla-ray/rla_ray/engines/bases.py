"""Digests of the base models under adapters, equal for weights that an engine cannot tell apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from rla.errors import UserError
from rla.models.checkpoint import Parts


def base_digest(parts: Parts, *, dtype: str) -> str:
    """Digest of a base model in precision `dtype`. It does not depend on how the files split the weights, nor on the
    precision that they are stored in.

    Raises UserError if a file cannot be read.
    """
    if not parts.weights:
        return str(parts.base)
    return _weights_digest(tuple((str(file), *file_state(file)) for file in parts.weights), dtype)


def file_state(file: Path) -> tuple[int, int, int]:
    """Inode, modification time and size: they change if the file is replaced or written to."""
    stat = file.stat()  # follows links: all iterations of a run share the files of the first weights
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
