"""Messages on the server's Unix socket, and what server and client must have in common.

Request: 4 bytes of length (network order), sent with the three standard streams as file descriptors, then
JSON. Replies, one byte each: REFUSED, or ACCEPTED and later DONE followed by the exit status. While the child
runs the client may send signal numbers, one byte each; closing the connection kills the process group.

Only the standard library, and little of it: the client pays for these imports on every call.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from hashlib import blake2b

from rla import __version__

ACCEPTED, REFUSED, DONE = b"+", b"-", b"="
RUN, PING, STOP = "run", "ping", "stop"

# Read by libraries when they are imported: a client whose values differ from the server's runs by itself.
IMPORT_TIME = (
    "OMP_",
    "GOMP_",
    "MKL_",
    "KMP_",
    "OPENBLAS_",
    "CUDA_",
    "NVIDIA_",
    "TORCH",
    "PYTORCH_",
    "HF_",
    "TRANSFORMERS_",
)
IMPORT_TIME_TOO = (
    "PYTHON",
    "LD_",
    "POLARS_",
    "RAYON_",
    "TOKENIZERS_",
    "XDG_CACHE_HOME",
    "HOME",
    "VIRTUAL_ENV",
)


def sources() -> list[tuple[str, int, int]]:
    """(path, modification time, size) of every Python file of the two packages."""
    package = os.path.abspath(__file__).rsplit(os.sep, 3)[0]
    found: list[tuple[str, int, int]] = []
    folders = [package, os.path.join(os.path.dirname(package), "stages")]
    while folders:
        for entry in os.scandir(folders.pop()):
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in ("__pycache__", "_data"):
                    folders.append(entry.path)
            elif entry.name.endswith(".py"):
                stat = entry.stat()
                found.append((entry.path, stat.st_mtime_ns, stat.st_size))
    return sorted(found)


def fingerprint(environment: Mapping[str, str]) -> str:
    """Equal for processes that would import the same code under the same import-time settings."""
    settings = sorted(item for item in environment.items() if item[0].startswith(IMPORT_TIME + IMPORT_TIME_TOO))
    return blake2b(repr((__version__, sources(), settings)).encode(), digest_size=16).hexdigest()


def receive_exactly(connection: socket.socket, count: int, *, until: float | None = None) -> bytes:
    """`count` bytes; EOFError where the other end closes before, TimeoutError at `until` of the monotonic clock."""
    data = b""
    while len(data) < count:
        if until is not None:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)
        piece = connection.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
