"""Episodes over actors, without Ray: on which one an episode steps, and what a lost, mute or useless one costs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rla_ray.code_digest import code_digest
from rla_ray.hosts import host, spreading
from rla_ray.hosts.host import EnvironmentHost
from rla_ray.hosts.ray_hosts import placed_actors
from rla_ray.hosts.spreading import TRIES, HostPool, SpreadEnvironment
from rla_ray.training.launcher import RayPool

from rla.config import resolved
from rla.envs.alfworld.environment import Alfworld
from rla.envs.fork_server import PoolMessage, from_observation, to_observation
from rla.envs.observation import (
    CallResult,
    Concludes,
    EnvironmentFailure,
    Observation,
    Recalls,
)
from rla.envs.pool import Environments, Lost, steps_on_cluster
from rla.errors import UserError
from rla.processes import CORES
from rla.store.records import Task
from tests.unit.builders import configured, task
from tests.unit.envs.odd import Odd

SERVER = "http://127.0.0.1:9"
MakeOne = Callable[[Task], Any]


class HereHost(EnvironmentHost):
    """The actor's own class, with environments of the test's in this process."""

    def __init__(self, make: MakeOne, refusal: str = "") -> None:
        super().__init__({}, cores=1, folder=".", code="")
        self.make, self.refusal = make, refusal
        self.stepped: list[str] = []

    async def begin(self) -> PoolMessage:
        await self.close()
        if self.refusal:
            return {"refused": self.refusal}
        self._made = Environments(self.make, figures=lambda: [{"calls": len(self.stepped)}])
        return {"ready": True}

    async def answer(self, episode: int, message: PoolMessage) -> PoolMessage:
        self.stepped.append(str(message.get("step", "reset")))
        return await super().answer(episode, message)


@dataclass(slots=True, eq=False)
class HereLink:
    """`HostLink` without a cluster. `lost` until it is begun again; `back`: it comes back at all."""

    make: MakeOne
    cores: int = 1
    refusal: str = ""
    back: bool = True
    mute: bool = False
    lost: bool = False
    killed: bool = False
    restarts: int = 0
    ended: list[int] = field(default_factory=list)
    host: HereHost | None = None
    fate: asyncio.Event = field(default_factory=asyncio.Event)

    async def begin(self) -> PoolMessage:
        if self.lost and not self.back:
            raise Lost("is lost")
        self.lost, self.mute = False, False
        self.fate = asyncio.Event()
        self.host = HereHost(self.make, self.refusal)
        return await self.host.begin()

    def lose(self) -> None:
        """As a node that loses its power."""
        self.lost = True
        self.fate.set()

    async def answer(self, episode: int, message: PoolMessage) -> PoolMessage:
        return await self.unless_lost(lambda host: host.answer(episode, message))

    async def ping(self) -> None:
        await self.unless_lost(lambda host: host.ping())

    async def close(self) -> Sequence[Mapping[str, float]]:
        return await self.unless_lost(lambda host: host.close())

    async def unless_lost(self, call: Callable[[HereHost], Awaitable[Any]]) -> Any:
        assert self.host is not None
        lost = asyncio.ensure_future(self.fate.wait())
        answer = asyncio.ensure_future(asyncio.sleep(3600) if self.mute else call(self.host))
        try:
            if not self.lost:
                await asyncio.wait({lost, answer}, return_when=asyncio.FIRST_COMPLETED)
            if self.lost:
                raise Lost("was lost with its node")
            return answer.result()
        finally:
            lost.cancel()
            answer.cancel()

    def end(self, episode: int) -> None:
        self.ended.append(episode)

    def restart(self) -> None:
        self.restarts += 1
        self.lose()

    def kill(self) -> None:
        self.killed = True


def over(
    links: Sequence[HereLink],
    main: Callable[[HostPool], Awaitable[Any]],
    *,
    places: int = 8,
    deadline: float = 5.0,
    patience: float = 5.0,
) -> tuple[Any, HostPool]:
    """What `main` gives, and the pool after its end."""
    with HostPool(links, places=places, deadline_s=deadline, patience_s=patience) as pool:

        async def timed() -> Any:
            async with asyncio.timeout(30):
                try:
                    return await main(pool)
                finally:
                    await pool.close()

        found = asyncio.run(timed())
    assert all(link.killed for link in links)
    return found, pool


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "RETRY", 0.01)


@pytest.fixture
def make(tmp_path: Path) -> MakeOne:
    return lambda _: Odd(tmp_path)


def links_of(make: MakeOne, *cores: int) -> list[HereLink]:
    return [HereLink(make, cores=one) for one in cores]


async def opened(pool: HostPool, count: int) -> list[SpreadEnvironment]:
    """So many episodes, each after its reset."""
    episodes = [pool.environment(task()) for _ in range(count)]
    for episode in episodes:
        await episode.reset()
    return episodes


def hosts_of(pool: HostPool) -> list[int]:
    return [len(host.open) for host in pool._hosts]


def test_an_episode_goes_to_the_actor_with_the_fewest_for_each_core(make: MakeOne) -> None:
    async def main(pool: HostPool) -> list[list[int]]:
        episodes = await opened(pool, 6)
        seen = [hosts_of(pool)]
        for episode in episodes:
            if episode.worker is not None and episode.worker.host is pool._hosts[1]:
                episode.close()
        seen.append(hosts_of(pool))
        await opened(pool, 1)
        return [*seen, hosts_of(pool)]

    assert over(links_of(make, 1, 2), main)[0] == [[2, 4], [2, 0], [2, 1]]


def test_an_episode_over_all_places_waits_for_one(make: MakeOne) -> None:
    async def main(pool: HostPool) -> list[bool]:
        first, second = await opened(pool, 2)
        third = asyncio.create_task(pool.environment(task()).reset())
        await asyncio.sleep(0.05)
        waited = not third.done()
        second.close()
        await third
        first.close()
        return [waited, third.done()]

    assert over(links_of(make, 1), main, places=2)[0] == [True, True]


def test_a_lost_actor_costs_the_replay_of_its_open_episodes_alone(make: MakeOne) -> None:
    links = links_of(make, 1, 1)

    async def main(pool: HostPool) -> list[Observation]:
        episodes = await opened(pool, 4)
        for episode in episodes:
            await episode.step("north")
        links[0].back = False
        links[0].lose()
        return [await episode.step("south") for episode in episodes]

    found, pool = over(links, main)
    assert [seen.text for seen in found] == ["north south"] * 4
    assert (pool.lost, pool.replaced) == (1, 2)
    assert links[1].host is not None
    assert sorted(links[1].host.stepped) == sorted(["reset", "north", "south"] * 4)


def test_an_actor_that_is_lost_in_the_middle_of_a_step_is_not_waited_for(make: MakeOne, tmp_path: Path) -> None:
    started = asyncio.Event()

    class Slow(Odd):
        async def step(self, action: str) -> Observation:  # type: ignore[override]
            if not started.is_set():
                started.set()
                await asyncio.sleep(3600)
            return super().step(action)

    links = links_of(lambda _: Slow(tmp_path), 1, 1)

    async def main(pool: HostPool) -> Observation:
        (episode,) = await opened(pool, 1)
        step = asyncio.create_task(episode.step("north"))
        await started.wait()
        assert episode.worker is not None
        links[pool._hosts.index(episode.worker.host)].lose()
        return await step

    found, pool = over(links, main)
    assert found.text == "north" and pool.lost == 1


def test_an_actor_that_comes_back_holds_nothing_and_takes_episodes_again(make: MakeOne) -> None:
    links = links_of(make, 1)

    async def main(pool: HostPool) -> list[str]:
        first, second = await opened(pool, 2)
        await first.step("north")
        links[0].lose()
        return [(await first.step("south")).text, (await second.step("north")).text]

    found, pool = over(links, main)
    assert found == ["north south", "north"] and pool.lost == 1 and pool.replaced == 2


def test_an_actor_that_started_again_while_nobody_asked_says_so(make: MakeOne) -> None:
    links = links_of(make, 1)

    async def main(pool: HostPool) -> str:
        (episode,) = await opened(pool, 1)
        await episode.step("north")
        await links[0].begin()
        return (await episode.step("south")).text

    found, pool = over(links, main)
    assert found == "north south" and (pool.lost, pool.replaced) == (0, 1)


def test_an_actor_that_says_nothing_is_killed_and_its_episodes_go_on(make: MakeOne) -> None:
    links = links_of(make, 1, 1)

    async def main(pool: HostPool) -> str:
        first, _ = await opened(pool, 2)
        links[0].mute = True
        return (await first.step("north")).text

    found, pool = over(links, main, deadline=0.1)
    assert found == "north" and (links[0].restarts, links[1].restarts, pool.lost) == (1, 0, 1)


def test_a_step_that_is_slow_on_an_actor_that_lives_is_waited_for(tmp_path: Path) -> None:
    class Slow(Odd):
        async def step(self, action: str) -> Observation:  # type: ignore[override]
            await asyncio.sleep(0.4)
            return super().step(action)

    async def main(pool: HostPool) -> str:
        (episode,) = await opened(pool, 1)
        return (await episode.step("north")).text

    found, pool = over(links_of(lambda _: Slow(tmp_path), 1), main, deadline=0.1)
    assert found == "north" and pool.lost == 0


def test_a_step_that_loses_every_actor_that_takes_it_ends_its_episode(tmp_path: Path) -> None:
    links: list[HereLink] = []

    class Deadly(Odd):
        def step(self, action: str) -> Observation:
            if action == "doom":
                links[0].lose()
            return super().step(action)

    links += links_of(lambda _: Deadly(tmp_path), 1)

    async def main(pool: HostPool) -> str:
        (episode,) = await opened(pool, 1)
        with pytest.raises(EnvironmentFailure, match=f"was lost with its node {TRIES} times at action 'doom'"):
            await episode.step("doom")
        episode.close()
        (other,) = await opened(pool, 1)
        return (await other.step("north")).text

    assert over(links, main)[0] == "north"


def test_an_episode_that_plays_differently_elsewhere_ends(tmp_path: Path) -> None:
    class Counting(Odd):
        resets = 0

        def reset(self) -> Observation:
            Counting.resets += 1
            return Observation(text=str(Counting.resets))

    links = links_of(lambda _: Counting(tmp_path), 1)

    async def main(pool: HostPool) -> None:
        (episode,) = await opened(pool, 1)
        links[0].lose()
        with pytest.raises(EnvironmentFailure, match="played again, answer 0 of the environment is another one"):
            await episode.step("north")

    over(links, main)


def test_a_node_that_refuses_the_environment_ends_the_stage_with_its_words(make: MakeOne) -> None:
    links = [HereLink(make), HereLink(make, refusal="node b: there is no sandbox; install bubblewrap")]

    async def main(pool: HostPool) -> None:
        with pytest.raises(UserError, match="node b: there is no sandbox; install bubblewrap"):
            await opened(pool, 1)

    over(links, main)


def test_a_stage_waits_for_lost_actors_for_its_patience_and_no_longer(make: MakeOne) -> None:
    links = links_of(make, 1)

    async def main(pool: HostPool) -> None:
        (episode,) = await opened(pool, 1)
        links[0].back = False
        links[0].lose()
        with pytest.raises(UserError, match="none of 1 actors with environments was available"):
            await episode.step("north")

    over(links, main, patience=0.2)


@pytest.mark.parametrize(("fault", "said"), [("fail", "^the corridor collapsed$"), ("raise", "raised RuntimeError: a")])
def test_what_an_environment_raises_ends_its_episode_and_loses_no_actor(fault: str, said: str, make: MakeOne) -> None:
    async def main(pool: HostPool) -> int:
        first, second = await opened(pool, 2)
        with pytest.raises(EnvironmentFailure, match=said):
            await first.step(fault)
        await second.step("north")
        return pool.lost

    assert over(links_of(make, 1), main)[0] == 0


def test_a_closed_episode_is_ended_on_its_actor_in_the_middle_of_a_step(tmp_path: Path) -> None:
    closed: list[bool] = []

    class Endless(Odd):
        async def step(self, action: str) -> Observation:  # type: ignore[override]
            await asyncio.sleep(3600)
            return super().step(action)

        def close(self) -> None:
            closed.append(True)

    async def main() -> PoolMessage:
        host = HereHost(lambda _: Endless(tmp_path))
        await host.begin()
        await host.answer(3, {"reset": task().row()})
        step = asyncio.create_task(host.answer(3, {"step": "north"}))
        await asyncio.sleep(0)
        await host.end(3)
        assert await host.answer(3, {"step": "north"}) == {"unknown": True}
        return await step

    assert asyncio.run(main()) == {"failure": "the episode was ended"} and closed == [True]


def test_figures_of_all_actors_are_there_at_the_end(make: MakeOne) -> None:
    async def main(pool: HostPool) -> None:
        for episode in await opened(pool, 3):
            await episode.step("north")

    _, pool = over(links_of(make, 1, 1), main)
    assert sorted(found["calls"] for found in pool.figures) == [2, 4]


class Telling(Odd):
    """It `Concludes` and `Recalls`, and its answers hold results of calls."""

    async def step(self, action: str) -> Observation:  # type: ignore[override]
        self.actions.append(action)
        results = (CallResult(text=f"{action}!", status="ok"),)
        return Observation(text=" ".join(self.actions), results=results, understood=False)

    async def stopped(self) -> Observation:
        return Observation(text=" ".join([*self.actions, "end"]), done=True)

    def recall(self, actions: Sequence[str], answers: Sequence[str]) -> None:
        self.actions = [f"{action}={answer}" for action, answer in zip(actions, answers, strict=True)]


def test_abilities_of_an_environment_are_those_of_its_episode_after_a_loss_too(tmp_path: Path, make: MakeOne) -> None:
    links = links_of(lambda _: Telling(tmp_path), 1, 1)

    async def main(pool: HostPool) -> list[Observation]:
        (episode,) = await opened(pool, 1)
        assert isinstance(episode, Concludes) and isinstance(episode, Recalls)
        episode.recall(["a", "b"], ["1", "2"])
        seen = [await episode.step("c")]
        assert episode.worker is not None
        links[pool._hosts.index(episode.worker.host)].lose()
        return [*seen, await episode.stopped()]

    step, end = over(links, main)[0]
    assert step == Observation(text="a=1 b=2 c", results=(CallResult("c!", "ok"),), understood=False)
    assert end == Observation(text="a=1 b=2 c end", done=True)

    async def plain(pool: HostPool) -> None:
        (episode,) = await opened(pool, 1)
        assert not isinstance(episode, Concludes) and not isinstance(episode, Recalls)

    over(links_of(make, 1), plain)


def test_an_observation_is_the_same_after_its_journey() -> None:
    seen = Observation(
        text="a",
        commands=("b",),
        reward=0.5,
        images=(b"\x00\xff",),
        results=(CallResult("c", "timeout"),),
        understood=False,
    )
    assert to_observation(from_observation(seen)) == seen


def test_actors_have_all_cores_of_a_node_or_so_many_of_them() -> None:
    cores = {"a": 8, "b": 3, "head": 0}
    assert placed_actors(cores, RayPool(), most=64) == [("a", 8), ("b", 3)]
    two = placed_actors(cores, RayPool(cpus=2), most=64)
    assert two == [("a", 2), ("b", 2), ("a", 2), ("a", 2), ("a", 2)]
    assert placed_actors(cores, RayPool(cpus=2, actors=3), most=64) == two[:3]
    assert placed_actors(cores, RayPool(cpus=2), most=1) == two[:1]
    with pytest.raises(UserError, match=r"pool.own.cpus: 9 cores .* have \[0, 3, 8\]; lower it"):
        placed_actors(cores, RayPool(cpus=9), most=64)


def test_an_actor_without_a_sandbox_names_its_node_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(host.platform, "node", lambda: "gpu-7")
    monkeypatch.setenv(CORES, "1")
    config = configured("env.name=coding")
    actor = EnvironmentHost(resolved(config), cores=1, folder="/nowhere", code=code_digest())
    said = asyncio.run(actor.begin())["refused"]
    assert said.startswith("node gpu-7: env.own.execution.backend is bubblewrap, but bwrap is not installed")
    assert "install the package bubblewrap" in said


def test_an_actor_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CORES, "1")
    monkeypatch.setattr(host.platform, "node", lambda: "gpu-7")
    actor = EnvironmentHost(resolved(configured()), cores=1, folder=".", code="of another version")
    assert "runs other code of rla" in asyncio.run(actor.begin())["refused"]


def test_an_actor_plays_what_the_environment_itself_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real one, from parameters alone, with worker processes of its own."""
    config = configured("pool.backend=ray")
    first = Alfworld().tasks(config, split="train", seed=1)[0]

    async def main() -> list[PoolMessage]:
        actor = EnvironmentHost(resolved(config), cores=1, folder=".", code=code_digest())
        assert await actor.begin() == {"ready": True}
        try:
            seen = [await actor.answer(0, {"reset": first.row()})]
            action = seen[0]["observation"]["commands"][0]
            return [*seen, await actor.answer(0, {"step": action})]
        finally:
            await actor.close()

    monkeypatch.setenv(CORES, "1")
    reset, step = asyncio.run(main())
    inline = Alfworld().make(first, config)
    assert to_observation(reset["observation"]) == (start := inline.reset()) and reset["abilities"] == []
    assert to_observation(step["observation"]) == inline.step(start.commands[0])


@pytest.mark.parametrize(
    ("overrides", "found"),
    [
        (["env.own.engine=textworld"], False),
        (["env.own.engine=textworld", "pool.backend=ray"], True),
        (["env.own.engine=textworld", "pool.backend=ray", "pool.mode=never"], False),
        (["pool.backend=ray"], False),
        (["pool.backend=ray", "pool.mode=always"], True),
        (["env.name=coding", "pool.backend=ray"], True),
        (["env.name=tool", "pool.backend=ray"], True),
        (["env.name=coding", "env.own.execution.backend=sandboxfusion", f"env.own.execution.server={SERVER}"], False),
    ],
)
def test_slow_environments_and_services_with_programs_step_on_the_cluster(overrides: list[str], found: bool) -> None:
    assert steps_on_cluster(configured(*overrides)) is found
