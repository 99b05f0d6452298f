"""Seeds derived by content: the same episode has the same seed whatever worker, slice or order it runs in."""

from __future__ import annotations

import hashlib


def derive(*parts: int | str) -> int:
    """A 63-bit seed from the parts (SHA-256 of their text), e.g. run seed, task id, rollout, iteration."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big") >> 1
