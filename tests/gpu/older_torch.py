"""A machine whose torch is older than the one that `rla` asks for."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor


def repeat_heads() -> bool:
    """Repeat keys and values if torch's attention for sequences of any length takes no grouped heads, as that of 2.11.

    Whether that is so.
    """
    from torch.nn.attention import varlen

    kernel: Any = varlen.varlen_attn
    if "enable_gqa" in inspect.signature(kernel).parameters:
        return False

    def repeated(query: Tensor, key: Tensor, value: Tensor, *bounds: Any, enable_gqa: bool, **options: Any) -> Tensor:
        times = query.shape[1] // key.shape[1]
        found: Tensor = kernel(
            query, *(one.repeat_interleave(times, dim=1) for one in (key, value)), *bounds, **options
        )
        return found

    varlen.varlen_attn = repeated  # type: ignore[assignment]
    return True
