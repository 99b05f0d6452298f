"""Which engine a lease gets, and when weights are loaded."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rla_ray.engines import seats
from rla_ray.engines.kept_engines import Wanted
from rla_ray.engines.seats import Seats

from rla import __version__
from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.llm.factory import ScriptedGenerator
from rla.models.checkpoint import Adapter
from rla.store.manifest import record_files, write_records

pytest.importorskip("torch")

from safetensors.numpy import save_file


class Recorded(ScriptedGenerator):
    """An engine that notes what is done to it."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    async def reload(self, model: str, *, stop_ids: Any) -> None:
        self.log.append(f"reload {Path(model).parent.name}")

    def forget(self) -> None:
        self.log.append("forget")

    def close(self) -> None:
        self.log.append("close")


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def kept(log: list[str]) -> Seats:
    def make(wanted: Wanted) -> Recorded:
        log.append(f"make {Path(wanted.model).parent.name}")
        return Recorded(log)

    return Seats(make)


def checkpoint(folder: Path, *, digest: str, width: int = 8) -> Wanted:
    """A folder as training writes it, without weights."""
    (folder / "model").mkdir(parents=True)
    (folder / "model/config.json").write_text(json.dumps({"hidden_size": width, "_name_or_path": str(folder)}))
    write_records(folder, record_files(folder))
    (folder / "checkpoint.json").write_text(json.dumps({"rla": __version__, "updates": 1, "digest": digest}))
    return Wanted(model=str(folder / "model"), config=GeneratorConfig(), stop_ids=(0,), seed=0)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


async def lease(kept: Seats, wanted: Wanted) -> None:
    async with kept.lease(wanted, object()) as seat:
        assert seat is not None


def test_weights_are_loaded_where_the_digest_is_another(tmp_path: Path, kept: Seats, log: list[str]) -> None:
    first, same, other = (
        checkpoint(tmp_path / name, digest=digest) for name, digest in (("a", "1"), ("a-again", "1"), ("b", "2"))
    )

    async def main() -> None:
        for wanted in (first, same, other, first):
            await lease(kept, wanted)

    run(main())
    assert log == ["make a", "forget", "forget", "reload b", "reload a"]


def test_another_architecture_has_an_engine_of_its_own(tmp_path: Path, kept: Seats, log: list[str]) -> None:
    policy = checkpoint(tmp_path / "policy", digest="1")
    rm = checkpoint(tmp_path / "rm", digest="2", width=16)

    async def main() -> None:
        for wanted in (policy, rm, policy, rm):
            await lease(kept, wanted)

    run(main())
    assert [line for line in log if line != "forget"] == ["make policy", "make rm"]


def test_other_settings_replace_the_engine(tmp_path: Path, kept: Seats, log: list[str]) -> None:
    wanted = checkpoint(tmp_path / "a", digest="1")

    async def main() -> None:
        await lease(kept, wanted)
        await lease(kept, replace(wanted, config=GeneratorConfig(max_sequences=3)))

    run(main())
    assert [line for line in log if line != "forget"] == ["make a", "close", "make a"]


def test_leases_of_the_same_weights_share_and_of_others_wait(
    tmp_path: Path, kept: Seats, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seats, "BUSY_SECONDS", 0.05)
    first, other = checkpoint(tmp_path / "a", digest="1"), checkpoint(tmp_path / "b", digest="2")

    async def main() -> None:
        async with kept.lease(first, "one") as seat, kept.lease(first, "two") as shared:
            assert shared is seat
            async with kept.lease(other, "three") as refused:
                assert refused is None
        monkeypatch.setattr(seats, "BUSY_SECONDS", 5.0)
        async with kept.lease(first, "one"):
            waiting = asyncio.create_task(lease(kept, other))
            await asyncio.sleep(0.02)
            assert not waiting.done()
        await waiting

    run(main())
    assert log[-1] == "reload b"


class Based(Recorded):
    """An engine that answers by the adapter it was last told of."""

    def over(self, adapter: Adapter | None, *, stop_ids: Any) -> ScriptedGenerator:
        self.log.append(f"over {adapter.folder.parent.name if adapter else 'base'}")
        return Recorded(self.log)


ADAPTERS = GeneratorConfig(backend="vllm", lora="adapter")


def trained(folder: Path, *, base: float, adapter: float | None) -> Wanted:
    """A checkpoint of LoRA training over weights that are all `base`; without `adapter` a plain model of them."""
    wanted = checkpoint(folder, digest=f"{base} {adapter}")
    if adapter is None:
        save_file({"w": np.full((2, 2), base)}, folder / "model/model.safetensors")
    else:
        for name in ("base", "adapter"):
            (folder / name).mkdir()
        save_file({"w": np.full((2, 2), base)}, folder / "base/model.safetensors")
        files = record_files(folder / "base")
        (folder / "model/base.json").write_text(json.dumps({"base": "../base", "files": files}))
        (folder / "adapter/adapter_config.json").write_text(json.dumps({"r": 1, "lora_alpha": 1}))
        save_file({"a": np.full((1, 2), adapter)}, folder / "adapter/adapter_model.safetensors")
    write_records(folder, record_files(folder))
    return replace(wanted, config=ADAPTERS)


def test_adapters_over_one_base_share_its_engine_at_the_same_time(tmp_path: Path, log: list[str]) -> None:
    def make(wanted: Wanted) -> Based:
        log.append(f"make {Path(wanted.model).parent.name}")
        return Based(log)

    kept = Seats(make)
    start = trained(tmp_path / "start", base=1.0, adapter=None)
    policy, rm, after = (
        trained(tmp_path / name, base=1.0, adapter=value)
        for name, value in (("policy", 2.0), ("rm", 3.0), ("after", 4.0))
    )
    elsewhere = trained(tmp_path / "elsewhere", base=5.0, adapter=2.0)

    async def main() -> None:
        await lease(kept, start)
        async with kept.lease(policy, "one") as one, kept.lease(rm, "two") as two:
            assert one is not None and two is not None and one is not two
        await lease(kept, after)
        await lease(kept, elsewhere)

    run(main())
    shared = ["make start", "over base", "over policy", "over rm", "over after"]
    assert [line for line in log if line != "forget"] == [*shared, "make elsewhere", "over elsewhere"]


def test_weights_that_did_not_load_are_loaded_again(tmp_path: Path, log: list[str]) -> None:
    class Failing(Recorded):
        async def reload(self, model: str, *, stop_ids: Any) -> None:
            await super().reload(model, stop_ids=stop_ids)
            raise UserError("half of it is missing")

    kept = Seats(lambda wanted: Failing(log))
    first, other = checkpoint(tmp_path / "a", digest="1"), checkpoint(tmp_path / "b", digest="2")

    async def main() -> None:
        await lease(kept, first)
        for wanted in (other, first):
            with pytest.raises(UserError, match="half"):
                await lease(kept, wanted)

    run(main())
    assert log == ["forget", "reload b", "reload a"]


def test_a_model_without_a_record_is_read_once_and_not_in_the_loop(
    tmp_path: Path, kept: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15 GB take seconds: the replies to others would wait for them, at each lease."""
    readers = []

    def reading(folder: Path) -> str:
        readers.append(threading.current_thread())
        return "digest"

    monkeypatch.setattr(seats, "model_digest", reading)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/config.json").write_text("{}")
    wanted = Wanted(model=str(tmp_path / "plain"), config=GeneratorConfig(), stop_ids=(0,), seed=0)
    run(lease(kept, wanted))
    run(lease(kept, wanted))
    assert len(readers) == 1 and readers[0] is not threading.main_thread()


def test_on_a_gpu_one_engine_is_awake(tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Sleeping(Recorded):
        async def sleep(self, among: int) -> bool:
            self.log.append(f"sleep {among}")
            return True

        async def wake(self) -> None:
            self.log.append("wake")

    def make(wanted: Wanted) -> Recorded:
        log.append(f"make {Path(wanted.model).parent.name}")
        return Sleeping(log)

    monkeypatch.setattr(seats, "BUSY_SECONDS", 0.05)
    kept = Seats(make, one_awake=True)
    policy = checkpoint(tmp_path / "policy", digest="1")
    rm = checkpoint(tmp_path / "rm", digest="2", width=16)

    async def main() -> None:
        await lease(kept, policy)
        await lease(kept, rm)
        async with kept.lease(policy, "one") as held:
            assert held is not None
            async with kept.lease(rm, "two") as refused:
                assert refused is None
        await lease(kept, rm)
        await kept.sleep(among=8)

    run(main())
    assert [line for line in log if line != "forget"] == [
        "make policy",
        "sleep 1",
        "make rm",
        "sleep 1",
        "wake",
        "sleep 1",
        "wake",
        "sleep 8",
        "sleep 8",
    ]


def test_an_engine_that_cannot_sleep_ends_for_another_one(tmp_path: Path, log: list[str]) -> None:
    def make(wanted: Wanted) -> Recorded:
        log.append(f"make {Path(wanted.model).parent.name}")
        return Recorded(log)

    kept = Seats(make, one_awake=True)
    policy = checkpoint(tmp_path / "policy", digest="1")
    rm = checkpoint(tmp_path / "rm", digest="2", width=16)

    async def main() -> None:
        for wanted in (policy, rm, policy):
            await lease(kept, wanted)

    run(main())
    assert [line for line in log if line != "forget"] == ["make policy", "close", "make rm", "close", "make policy"]
