"""What a training uses, by parts: processor seconds, seconds of the clock, tokens through the model's embedding.

Every token that any model of the process computes passes `nn.Embedding` once, padding included, in whichever library's
code. So one count serves both sides. A part that runs within another one is taken out of it.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor, nn

from tests.bench.resident import peak_resident

KINDS = ("cpu", "wall", "tokens")


class Meter:
    """Counts from the moment it is made. `record` writes the line of an iteration and begins the next."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tokens = 0
        self._parts: list[str] = []
        self._since = (0.0, 0.0, 0)
        self._found: dict[str, dict[str, float]] = {kind: defaultdict(float) for kind in KINDS}
        forward = nn.Embedding.forward

        def counted(module: nn.Embedding, ids: Tensor) -> Tensor:
            self._tokens += ids.numel()
            return forward(module, ids)

        nn.Embedding.forward = counted  # type: ignore[method-assign]
        self._now()

    def _now(self) -> tuple[float, float, int]:
        """What has passed since it was asked last."""
        now = (time.process_time(), time.perf_counter(), self._tokens)
        before, self._since = self._since, now
        return now[0] - before[0], now[1] - before[1], now[2] - before[2]

    def _credit(self) -> None:
        """What has passed goes to the innermost part; what passes outside of all is not counted."""
        passed = self._now()
        for kind, value in zip(KINDS, passed, strict=True):
            if self._parts:
                self._found[kind][self._parts[-1]] += value

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._credit()
        self._parts.append(name)
        try:
            yield
        finally:
            self._credit()
            self._parts.pop()

    def record(self, iteration: int, *, episodes: int, train_success: float) -> None:
        """A line of JSON with what every part of the iteration used, and the process's peak memory so far."""
        self._credit()
        row = {
            "iteration": iteration,
            "episodes": episodes,
            "train_success": train_success,
            **{kind: dict(parts) for kind, parts in self._found.items()},
            "peak_mib": peak_resident() / 2**20,
        }
        with self._file.open("a") as out:
            out.write(json.dumps(row) + "\n")
        for parts in self._found.values():
            parts.clear()
