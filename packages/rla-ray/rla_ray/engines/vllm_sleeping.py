"""A vLLM engine that gives its GPUs' memory back while something else trains on them, and goes on afterwards.

vLLM's sleep mode knows two levels: 1 keeps the weights in the host's memory, 2 drops them, so that they have to be read
again. Level 1 is taken where the host has room for them twice, because training needs memory, too, and for those of
all engines that fall asleep with this one. It is always taken with adapters, whose base is not read again.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rla.config.sections import GeneratorConfig
from rla.llm.vllm_engine import VllmGenerator
from rla.models.checkpoint import parts_of

ROOM = 2  # times the weights that the host must have free


class SleepingVllm(VllmGenerator):
    """Without a GPU there is nothing to give back, and sleeping does nothing."""

    def __init__(self, config: GeneratorConfig, *, model: Path | str, stop_ids: Collection[int], seed: int) -> None:
        super().__init__(config, model=model, stop_ids=stop_ids, seed=seed, sleeps=True)
        self._keeps_base = config.lora == "adapter"
        self._size = weight_bytes(model)

    async def sleep(self, among: int) -> bool:
        """Whether the engine still has its weights afterwards. `among`: so many fall asleep, perhaps on this host."""
        if not self.sleeps:
            return True
        kept = self._keeps_base or free_bytes() > ROOM * self._size * among
        await self._engine.sleep(level=1 if kept else 2)
        return kept

    async def wake(self) -> None:
        """Take the memory again. After a sleep without its weights the engine is good for nothing but `reload`."""
        if self.sleeps:
            await self._engine.wake_up()


def free_bytes(proc: Path = Path("/proc"), group: Path = Path("/sys/fs/cgroup")) -> int:
    """Of memory that this process may have: what the host has available, or what its container's limit leaves."""
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    free = next(int(words[1]) << 10 for words in lines if words[0] == "MemAvailable:")
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:  # no container, or one of another kind
        return free
    return free if limit == "max" else min(free, int(limit) - int(used))


def weight_bytes(model: Path | str) -> int:
    """Size of a folder's weights; 0 of a hub id, which is not on this machine's disk by that name."""
    return sum(file.stat().st_size for file in parts_of(model).weights)
