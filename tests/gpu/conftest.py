"""The tests of a CUDA device also run beside an older torch."""

from __future__ import annotations

import torch

from tests.gpu.older_torch import repeat_heads

if torch.cuda.is_available():
    repeat_heads()
