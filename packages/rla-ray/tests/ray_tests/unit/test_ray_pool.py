"""Which engine of a pool answers, and what becomes of the requests of one that is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from rla_ray.devices import UsedDevice
from rla_ray.engines.kept_engines import Wanted
from rla_ray.engines.pool import LAG, RayGenerator

from ray_tests.unit.local_actors import LocalActors, until
from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.llm.base import Request
from tests.unit.training.builders import tiny_model


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalActors]:
    made = LocalActors()
    # Outside an actor Ray would look for a cluster when it is asked which GPUs are this worker's.
    monkeypatch.setattr("rla_ray.engines.actor.devices_of_ray_worker", lambda: (UsedDevice(host="here"),))
    yield made
    made.end()


@pytest.fixture
def wanted(tmp_path: Path) -> Wanted:
    model = tiny_model(tmp_path / "model", seed=0)
    return Wanted(model=str(model), config=GeneratorConfig(context=512), stop_ids=(0,), seed=0)


def asked(seed: int, session: str | None = None) -> Request:
    return Request(prompt_ids=[1, 2], max_tokens=4, temperature=1.0, seed=seed, session=session)


def pool_of(actors: LocalActors, refs: Any, wanted: Wanted) -> RayGenerator:
    return RayGenerator(actors, refs, wanted=wanted, patience=20.0)


def test_requests_without_a_session_go_to_the_engine_with_the_fewest(actors: LocalActors, wanted: Wanted) -> None:
    refs, handles = actors.engines(2)
    for handle in handles:
        handle.free()

    async def main() -> list[list[int]]:
        pool = pool_of(actors, refs, wanted)
        found = await asyncio.gather(*(pool.generate(asked(seed)) for seed in range(6)))
        pool.close()
        return [one[0].token_ids for one in found]

    found = asyncio.run(main())
    assert [seed for _, seed in found] == list(range(6))  # each with its own seed
    assert [engine for engine, _ in found] == [0, 1, 0, 1, 0, 1]


def test_a_session_stays_with_its_engine_until_that_is_far_behind(actors: LocalActors, wanted: Wanted) -> None:
    refs, handles = actors.engines(2)
    handles[1].free()

    async def main() -> list[int]:
        pool = pool_of(actors, refs, wanted)
        first = asyncio.create_task(pool.generate(asked(0, "a")))  # to engine 0, which does not answer yet
        await until(lambda: handles[0].echo.sessions)
        held = [asyncio.create_task(pool.generate(asked(1, "a"))) for _ in range(LAG)]
        await until(lambda: len(handles[0].echo.sessions) == 1 + LAG)
        moved = (await pool.generate(asked(2, "a")))[0].token_ids[0]
        handles[0].free()
        await asyncio.gather(first, *held)
        after = (await pool.generate(asked(3, "a")))[0].token_ids[0]
        pool.release("a")
        await until(lambda: handles[1].echo.released)
        pool.close()
        return [moved, after]

    assert asyncio.run(main()) == [1, 1]
    assert handles[1].echo.released[0].endswith(":a")


def test_the_others_are_asked_for_what_a_lost_engine_had(actors: LocalActors, wanted: Wanted) -> None:
    refs, handles = actors.engines(2)
    handles[1].free()

    async def main() -> list[list[int]]:
        pool = pool_of(actors, refs, wanted)
        waiting = [asyncio.create_task(pool.generate(asked(seed))) for seed in range(4)]
        await until(lambda: len(handles[0].echo.sessions) == 2)
        handles[0].kill()
        found = await asyncio.gather(*waiting)
        pool.close()
        return [one[0].token_ids for one in found]

    assert asyncio.run(main()) == [[1, seed] for seed in range(4)]


def test_the_others_are_asked_where_the_processes_below_an_engine_have_ended(
    actors: LocalActors, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The actor lives, and its engine never answers again: so the actor ends."""
    refs, handles = actors.engines(2)
    handles[1].free()

    async def broken(request: Request) -> Any:
        handles[0].echo.dead = True
        raise RuntimeError("the engine's process ended")

    monkeypatch.setattr("rla_ray.engines.actor.os._exit", lambda status: handles[0].kill())
    handles[0].echo.generate = broken  # type: ignore[method-assign]

    async def main() -> list[list[int]]:
        pool = pool_of(actors, refs, wanted)
        found = await asyncio.gather(*(pool.generate(asked(seed)) for seed in range(4)))
        pool.close()
        return [one[0].token_ids for one in found]

    assert asyncio.run(main()) == [[1, seed] for seed in range(4)]
    assert handles[0].dead


def test_an_engine_that_started_again_is_used_again(actors: LocalActors, wanted: Wanted) -> None:
    refs, (handle,) = actors.engines(1)

    async def main() -> list[int]:
        pool = pool_of(actors, refs, wanted)
        waiting = asyncio.create_task(pool.generate(asked(7)))
        await until(lambda: handle.echo.sessions)
        handle.kill()
        await asyncio.sleep(0.1)
        handle.restart()
        handle.free()
        found = await waiting
        pool.close()
        return found[0].token_ids

    assert asyncio.run(main()) == [0, 7]


def test_without_any_engine_the_stage_ends_after_its_patience(actors: LocalActors, wanted: Wanted) -> None:
    refs, (handle,) = actors.engines(1)

    async def main() -> None:
        pool = RayGenerator(actors, refs, wanted=wanted, patience=2.0)
        handle.kill()
        with pytest.raises(UserError, match="all engines were lost for 2 seconds"):
            await pool.generate(asked(0))
        with pytest.raises(UserError, match="all engines were lost"):  # and every later request at once
            await pool.generate(asked(1))
        pool.close()

    asyncio.run(main())


def test_two_stages_with_other_weights_have_half_of_the_engines_each(
    actors: LocalActors, wanted: Wanted, tmp_path: Path
) -> None:
    refs, handles = actors.engines(2)
    other = replace(wanted, model=str(tiny_model(tmp_path / "other", seed=1)))
    for handle in handles:
        handle.free()

    async def main() -> list[int]:
        playing = pool_of(actors, refs, wanted)
        await asyncio.gather(*(playing.generate(asked(seed)) for seed in range(2)))  # both engines are its own
        ended = asyncio.Event()

        async def play() -> None:
            while not ended.is_set():
                await playing.generate(asked(0))
                await asyncio.sleep(0.05)

        busy = [asyncio.create_task(play()) for _ in range(4)]
        judging = await asyncio.to_thread(pool_of, actors, refs, other)
        found = [(await judging.generate(asked(seed)))[0].token_ids[1] for seed in range(4)]
        assert not any(task.done() for task in busy)  # the other stage goes on with what it has left
        ended.set()
        await asyncio.gather(*busy)
        judging.close()
        playing.close()
        return found

    assert asyncio.run(main()) == [0, 1, 2, 3]
