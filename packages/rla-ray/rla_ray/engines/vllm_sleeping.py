"""A vLLM engine that releases its GPUs' memory while something else trains on them, and continues afterwards.

vLLM has two levels of sleep. Level 1 keeps the weights in host memory. Level 2 drops them, so they have to be read
again. Level 1 is used if the host has room for the weights twice, because training needs memory too, counted for all
engines that fall asleep together. With adapters it is always level 1, because the base is not read again.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rla.config.sections import GeneratorConfig
from rla.llm.vllm_engine import VllmGenerator
from rla.models.checkpoint import parts_of

ROOM = 2  # free host memory that level 1 needs, as a multiple of the weights


class SleepingVllm(VllmGenerator):
    """Without a GPU there is no memory to release, and sleeping does nothing."""

    def __init__(self, config: GeneratorConfig, *, model: Path | str, stop_ids: Collection[int], seed: int) -> None:
        super().__init__(config, model=model, stop_ids=stop_ids, seed=seed, sleeps=True)
        self._keeps_base = config.lora == "adapter"
        self._size = _weight_bytes(model)

    async def sleep(self, among: int) -> bool:
        """Sleep. Returns whether the engine still has its weights. `among`: how many fall asleep at once, perhaps on
        this host.
        """
        if not self.sleeps:
            return True
        kept = self._keeps_base or free_bytes() > ROOM * self._size * among
        await self._engine.sleep(level=1 if kept else 2)
        return kept

    async def wake(self) -> None:
        """Take the memory back. If the weights were dropped, only `reload` may follow."""
        if self.sleeps:
            await self._engine.wake_up()


def free_bytes(proc: Path = Path("/proc"), group: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of memory that this process may still use, by the host's available memory or its container's limit."""
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    free = next(int(words[1]) << 10 for words in lines if words[0] == "MemAvailable:")
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:  # no container, or a kind without these files
        return free
    return free if limit == "max" else min(free, int(limit) - int(used))


def _weight_bytes(model: Path | str) -> int:
    """Size of a folder's weights in bytes; 0 for a hub id, whose files are elsewhere."""
    return sum(file.stat().st_size for file in parts_of(model).weights)
