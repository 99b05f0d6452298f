"""Episodes over the wire: what an honest server is asked, and what becomes of a hostile one."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from rla_bridges.adapters.openenv_params import OpenEnvParams
from rla_bridges.adapters.openenv_service import OpenEnvEpisode, OpenEnvService

from bridges_tests.adapters.openenv_fake import FakeServer, HangUp, error, observation, serving
from rla.envs.authoring import root_task
from rla.envs.observation import EnvironmentFailure, Observation
from rla.errors import UserError

TASK = root_task(env="openenv", split="train", instruction="Say.", content={"server": "fake", "reset": {"seed": 7}})
CELL_ACTION = {"properties": {"row": {"type": "integer"}, "column": {"type": "integer"}}, "required": ["row", "column"]}


def played(server: FakeServer, play: Callable[[OpenEnvService], Awaitable[Any]], **own: Any) -> Any:
    async def run() -> Any:
        async with serving(server) as url:
            service = OpenEnvService(replace(OpenEnvParams(id=url, timeout=5.0), **own))
            try:
                return await play(service)
            finally:
                await service.close()

    return asyncio.run(run())


async def one_step(service: OpenEnvService) -> Observation:
    episode = service.make(TASK)
    try:
        await episode.reset()
        return await episode.step("hi")
    finally:
        episode.close()


def test_an_episode_asks_for_the_task_and_adds_up_what_steps_earn() -> None:
    rewards = {"reset": None, "step": 0.25}
    server = FakeServer(lambda said: observation(reward=rewards[said["type"]]))

    async def play(service: OpenEnvService) -> list[float | None]:
        episode = service.make(TASK)
        seen = [await episode.reset(), await episode.step("a"), await episode.step("b"), await episode.reset()]
        episode.close()
        return [each.reward for each in seen]

    assert played(server, play, reset='{"level": 2, "seed": 1}') == [0.0, 0.25, 0.5, 0.0]
    reset = {"type": "reset", "data": {"level": 2, "seed": 7}}
    assert server.heard == [
        reset,
        {"type": "step", "data": {"message": "a"}},
        {"type": "step", "data": {"message": "b"}},
        reset,
    ]
    assert server.most == 1  # the second reset is on the same connection


def test_a_text_that_is_no_action_costs_a_step_and_is_not_sent() -> None:
    board = observation({"text": "board", "commands": ["1 2"]}, reward=0.5)
    server = FakeServer(lambda said: board, action=CELL_ACTION)

    async def play(service: OpenEnvService) -> tuple[Observation, Observation]:
        episode = service.make(TASK)
        first = await episode.reset()
        seen = await episode.step("the middle")
        episode.close()
        return first, seen

    first, seen = played(server, play)
    assert first.text == "board\n\nActions are written as: row=<integer> column=<integer>"
    assert seen.text == "That is not an action: row must be integer, not 'the'."
    assert (seen.commands, seen.reward, seen.done, seen.won) == (("1 2",), 0.5, False, False)
    assert [said["type"] for said in server.heard] == ["reset"]


def test_an_action_that_the_server_finds_invalid_is_told_back() -> None:
    refusal = error("VALIDATION_ERROR", "too long")
    server = FakeServer(lambda said: observation() if said["type"] == "reset" else refusal)
    assert played(server, one_step).text == "That action was refused: too long."


DEEP = '{"type": "observation", "data": {"observation": {"x": ' + "[" * 100_000 + "]" * 100_000 + "}}}"
HOSTILE = [
    ("not json", "not JSON"),
    ("[" * 100_000, "not JSON"),
    (DEEP, "not JSON"),
    (b"bytes", "closed the connection"),
    ("x" * (5 << 20), "closed the connection"),
    ({"type": "observation"}, "not an observation"),
    ([1], "not an observation"),
    ("null", "not an observation"),
    ({"type": "state", "data": {}}, "not an observation"),
    (observation("text"), "not a JSON object"),
    (observation(done="yes"), "`done`"),
    (observation(done=1), "`done`"),
    (observation(reward="1"), "not a finite number"),
    (observation(reward=float("nan")), "not a finite number"),
    (observation(reward=float("inf")), "not a finite number"),
    (observation(reward=10**400), "not a finite number"),
    (observation(reward={}), "not a finite number"),
    (observation({"text": "x", "commands": ["c"] * 10_001}), "10001 commands"),
    (error("EXECUTION_ERROR", "it broke"), "EXECUTION_ERROR: it broke"),
    ({"type": "error", "data": {"code": [], "message": {}}}, "a value of type list"),
    (None, "no answer in env.own.timeout = 0.3 s"),
]


@pytest.mark.parametrize(("said", "reason"), HOSTILE)
def test_an_answer_that_makes_no_sense_ends_the_episode(said: Any, reason: str) -> None:
    server = FakeServer(lambda asked: observation() if asked["type"] == "reset" else said)
    with pytest.raises(EnvironmentFailure, match=re.escape(reason)) as failure:
        played(server, one_step, timeout=0.3 if said is None else 20.0)
    assert len(str(failure.value)) < 700


def test_a_lost_connection_ends_the_episode_and_a_reset_makes_a_new_one() -> None:
    def reply(said: dict[str, Any]) -> Any:
        if said["type"] == "step":
            raise HangUp
        return observation()

    async def play(service: OpenEnvService) -> str:
        episode = service.make(TASK)
        await episode.reset()
        with pytest.raises(EnvironmentFailure, match="closed the connection"):
            await episode.step("hi")
        with pytest.raises(EnvironmentFailure, match="no connection"):
            await episode.step("hi")
        text = (await episode.reset()).text
        episode.close()
        return text

    assert played(FakeServer(reply), play) == "hello"


def test_rewards_that_add_up_to_infinity_are_refused() -> None:
    server = FakeServer(lambda said: observation(reward=1.7e308))
    with pytest.raises(EnvironmentFailure, match="too large to add up"):
        played(server, one_step)


def test_texts_are_cut_and_can_be_written_to_a_file() -> None:
    server = FakeServer(lambda said: observation({"text": "\ud800ab" + "c" * 100, "commands": ["\udfff"]}))
    seen = played(server, one_step, max_chars=5)
    assert seen.text == "?abcc [... 98 more characters]"
    assert seen.commands == ("?",)
    (seen.text + seen.commands[0]).encode()


async def _first_text(service: OpenEnvService) -> str:
    episode = service.make(TASK)
    text = (await episode.reset()).text
    episode.close()
    return text


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ({"text": "a", "score": 3}, "a"),
        ({"echo": "a", "metadata": {"answer": "secret"}, "error": None}, "a"),
        ({"echo": "a", "length": 1}, '{"echo": "a", "length": 1}'),
        ({"board": [0, 1], "commands": [3]}, '{"board": [0, 1]}'),
        ({"metadata": {"answer": "secret"}}, ""),
        ({"text": 5}, '{"text": 5}'),
    ],
)
def test_the_policy_reads_the_text_of_an_observation_or_its_json(shown: Any, text: str) -> None:
    assert played(FakeServer(lambda said: observation(shown)), _first_text) == text


def test_a_parameter_names_the_entry_to_read() -> None:
    server = FakeServer(lambda said: observation({"text": "a", "board": [1]}))
    assert played(server, _first_text, text_field="board") == "[1]"
    with pytest.raises(EnvironmentFailure, match="no 'bord', which env"):
        played(server, _first_text, text_field="bord")


def test_no_more_connections_are_open_than_allowed() -> None:
    server = FakeServer(lambda said: observation())

    async def play(service: OpenEnvService) -> None:
        await asyncio.gather(*(one_step(service) for _ in range(12)))

    played(server, play, connections=3)
    assert (server.most, server.refused, len(server.heard)) == (3, 0, 24)


def test_a_server_that_is_full_is_asked_for_no_more_than_it_has() -> None:
    server = FakeServer(lambda said: observation(), sessions=2)

    async def play(service: OpenEnvService) -> int:
        await asyncio.gather(*(one_step(service) for _ in range(6)))
        before = server.refused
        await asyncio.gather(*(one_step(service) for _ in range(6)))
        return server.refused - before

    refused_later = played(server, play, connections=6)
    assert server.most == 2
    assert server.refused >= 4
    assert refused_later <= 4  # none but those that come before the server has ended a session


def test_a_server_that_stays_full_ends_the_episode() -> None:
    with pytest.raises(EnvironmentFailure, match="CAPACITY_REACHED"):
        played(FakeServer(lambda said: observation(), sessions=0), one_step, timeout=0.3)


def test_tasks_of_another_server_are_refused() -> None:
    server = FakeServer(lambda said: observation(), metadata={"name": "other"})
    with pytest.raises(UserError, match="serves 'other', but the tasks were made for 'fake'"):
        played(server, one_step)


@pytest.mark.parametrize("payload", ["", "[]", "{}", '{"server": 1, "reset": {}}', '{"server": "fake", "reset": 3}'])
def test_a_task_of_another_environment_is_refused(payload: str) -> None:
    service = OpenEnvService(OpenEnvParams(id="http://127.0.0.1:9"))
    with pytest.raises(EnvironmentFailure, match="was not made for an OpenEnv server"):
        service.make(replace(TASK, payload=payload))


def test_a_missing_server_is_the_users_to_mend() -> None:
    async def play() -> None:
        service = OpenEnvService(OpenEnvParams(id="http://127.0.0.1:9", timeout=2.0))
        try:
            await service.make(TASK).reset()
        finally:
            await service.close()

    with pytest.raises(UserError, match="start the OpenEnv server or correct the address"):
        asyncio.run(play())


def test_an_environment_by_itself_closes_what_it_opened() -> None:
    server = FakeServer(lambda said: observation())

    async def play() -> tuple[str, int]:
        async with serving(server) as url:
            service = OpenEnvService(OpenEnvParams(id=url))
            episode = OpenEnvEpisode(service, json.loads(TASK.payload), alone=True)
            text = (await episode.reset()).text
            episode.close()
            while len(asyncio.all_tasks()) > 1 and server.open:
                await asyncio.sleep(0.01)
            return text, server.open

    assert asyncio.run(play()) == ("hello", 0)


def test_what_nobody_closes_ends_with_the_event_loop(logged: list[str]) -> None:
    async def play() -> None:
        async with serving(FakeServer(lambda said: observation())) as url:
            await OpenEnvService(OpenEnvParams(id=url)).make(TASK).reset()

    gc.collect()  # what other tests have left is not to be told of here
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asyncio.run(play())
        gc.collect()
    assert (logged, [str(each.message) for each in warned]) == ([], [])


def test_an_environment_that_was_never_reset_can_be_closed_outside_of_an_event_loop() -> None:
    service = OpenEnvService(OpenEnvParams(id="http://127.0.0.1:9"))
    OpenEnvEpisode(service, json.loads(TASK.payload), alone=True).close()


TOOLS = [
    {"name": "add", "description": "Adds.", "input_schema": CELL_ACTION},
    {"name": "echo", "input_schema": {"properties": {"m": {"type": "string"}}, "required": ["m"]}},
    {"name": "stop", "input_schema": {}},
]


def tool_server(said: dict[str, Any]) -> Any:
    data = said["data"]
    if said["type"] == "reset":
        return observation({})
    if data == {"type": "list_tools"}:
        return observation({"tools": TOOLS})
    if data["tool_name"] == "stop":
        return observation({"tool_name": "stop", "result": None, "error": {"message": "not yet"}})
    return observation({"tool_name": "x", "result": {"content": [{"text": json.dumps(data["arguments"])}]}})


def test_tools_are_listed_and_called_by_name() -> None:
    server = FakeServer(tool_server, action={"title": "CallToolAction", "properties": {}})

    async def play(service: OpenEnvService) -> list[str]:
        episode = service.make(TASK)
        texts = [(await episode.reset()).text]
        for action in ("add 1 2", "echo a b", '{"tool_name": "echo", "arguments": {"m": "c"}}', "stop", "add x", "fly"):
            texts.append((await episode.step(action)).text)
        episode.close()
        return texts

    assert played(server, play) == [
        "Tools:\nadd row=<integer> column=<integer> (Adds.)\necho m=<string>\nstop",
        '{"row": 1, "column": 2}',
        '{"m": "a b"}',
        '{"m": "c"}',
        "error: not yet",
        "That is not an action: row must be integer, not 'x'.",
        "That is not an action: there is no tool 'fly'; there are add, echo, stop.",
    ]


@pytest.mark.parametrize("tools", [None, [], ["add"], [{"name": "a b", "input_schema": {}}], [{"name": "add"}]])
def test_a_list_of_tools_that_is_none_ends_the_episode(tools: Any) -> None:
    server = FakeServer(
        lambda said: observation({"tools": tools}), action={"title": "CallToolAction", "properties": {}}
    )
    with pytest.raises(EnvironmentFailure, match="lists"):
        played(server, one_step)
