"""How much memory an engine that falls asleep may keep."""

from __future__ import annotations

from pathlib import Path

from rla_ray.engines.vllm_sleeping import free_bytes


def test_free_memory_is_what_the_host_has_available_or_the_container_may_have(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 4000 kB\n")
    assert free_bytes(tmp_path, tmp_path / "none") == 4000 << 10
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes(tmp_path, tmp_path) == 4000 << 10
    (tmp_path / "memory.max").write_text("51000\n")
    assert free_bytes(tmp_path, tmp_path) == 50000
