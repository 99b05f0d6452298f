"""Sessions over the wire: whole episodes, bad messages, limits, and who may talk to the server."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from rla_bridges.serving.openenv_server import LARGEST_MESSAGE, ServerLimits

from bridges_tests.serving.counting import Counting, Talk, counting, said, served, talked
from rla.envs.observation import Observation

RESET = {"type": "reset", "data": {"task_id": "t2"}}
STEP = {"type": "step", "data": {"action": "one"}}


@pytest.fixture(autouse=True)
def nothing_left() -> Any:
    Counting.alive = 0
    yield
    assert Counting.alive == 0


def answers(*messages: Any, env: Any = None) -> list[Any]:
    async def talk(end: Talk) -> list[Any]:
        async with end.session() as socket:
            return [await said(socket, message) for message in messages]

    return talked(talk, env=env)


def test_an_episode_from_its_reset_to_its_win() -> None:
    first, one, two, state = answers(RESET, STEP, STEP, {"type": "state"})
    assert first == {
        "type": "observation",
        "data": {
            "observation": {
                "text": "0",
                "commands": ["one", "help me"],
                "won": False,
                "task_id": "t2",
                "metadata": {},
            },
            "reward": None,
            "done": False,
        },
    }
    assert (one["data"]["observation"]["text"], one["data"]["reward"], one["data"]["done"]) == ("1 one", 0.0, False)
    assert (two["data"]["observation"]["won"], two["data"]["reward"], two["data"]["done"]) == (True, 1.0, True)
    assert state["data"] == {
        "episode_id": "t2",
        "step_count": 2,
        "return": 1.0,
        "won": True,
        "done": True,
        "task_id": "t2",
        "split": "train",
        "kind": "pick_and_place_simple",
        "instruction": "count to 2",
        "environment": "alfworld",
    }


def test_an_episode_is_over_after_as_many_steps_as_a_rollout_has() -> None:
    env = served(counting, "env.max_steps=1", "env.omit_commands=[help]")
    first, one, two = answers(RESET, STEP, STEP, env=env)
    assert first["data"]["observation"]["commands"] == ["one"]
    assert (one["data"]["done"], one["data"]["reward"]) == (True, 0.0)
    assert two["data"] == {"code": "EXECUTION_ERROR", "message": "the episode is over; send a reset"}


def test_an_answer_without_a_reward_takes_none_away() -> None:
    class Pausing(Counting):
        def step(self, action: str) -> Observation:
            seen = super().step(action)
            return type(seen)(text=seen.text, reward=None if self.steps == 2 else 0.25 * self.steps)

    env = served(lambda task: Pausing(99), "env.reward_threshold=9")
    rewards = [each["data"]["reward"] for each in answers(RESET, STEP, STEP, STEP, env=env)]
    assert rewards == [None, 0.25, 0.0, 0.5]


def test_rewards_are_what_each_step_adds() -> None:
    class Earning(Counting):
        def step(self, action: str) -> Any:
            seen = super().step(action)
            return type(seen)(text=seen.text, reward=0.25 * self.steps)

    env = served(lambda task: Earning(99), "env.reward_threshold=0.75")
    rewards = [(each["data"]["reward"], each["data"]["done"]) for each in answers(RESET, STEP, STEP, STEP, env=env)]
    assert rewards == [(None, False), (0.25, False), (0.25, False), (0.25, True)]


def test_rewards_whose_difference_overflows_end_their_episode_alone() -> None:
    class Swinging(Counting):
        def step(self, action: str) -> Any:
            return type(super().step(action))(text="?", reward=-1.5e308 if self.steps == 1 else 1.5e308)

    env = served(lambda task: Swinging(99), "env.reward_threshold=9")
    _, first, flaw, again = answers(RESET, STEP, STEP, RESET, env=env)
    assert first["data"]["reward"] == -1.5e308
    assert (flaw["type"], flaw["data"]["code"], again["type"]) == ("error", "EXECUTION_ERROR", "observation")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("", "INVALID_JSON"),
        ("{", "INVALID_JSON"),
        ("[" * 200_000, "INVALID_JSON"),
        ("[1]", "VALIDATION_ERROR"),
        ("{}", "UNKNOWN_TYPE"),
        ('{"type": []}', "UNKNOWN_TYPE"),
        ('{"type": "mcp", "data": {}}', "UNKNOWN_TYPE"),
        ('{"type": "step", "data": "one"}', "VALIDATION_ERROR"),
        ('{"type": "step"}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"action": 5}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"action": "one", "task_id": "t1"}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"split": "nope"}}', "VALIDATION_ERROR"),
    ],
)
def test_a_bad_message_is_answered_and_the_episode_goes_on(message: str, code: str) -> None:
    _, flaw, after = answers(RESET, message, STEP)
    assert (flaw["type"], flaw["data"]["code"]) == ("error", code)
    assert after["data"]["observation"]["text"] == "1 one"


def test_bytes_are_no_message() -> None:
    async def talk(end: Talk) -> Any:
        async with end.session() as socket:
            await socket.send_bytes(b'{"type": "state"}')
            return (await socket.receive_json())["data"]["code"]

    assert talked(talk) == "INVALID_JSON"


def test_a_step_without_an_episode_is_refused() -> None:
    assert answers(STEP)[0]["data"] == {"code": "EXECUTION_ERROR", "message": "there is no episode; send a reset"}
    assert answers({"type": "state"})[0]["data"] == {"episode_id": None, "step_count": 0}


@pytest.mark.parametrize(
    ("action", "told"),
    [("break", "it broke"), ("nan", "the environment answered an Observation whose reward is nan (float)")],
)
def test_an_environment_that_fails_ends_its_episode(action: str, told: str) -> None:
    _, flaw, after, again = answers(RESET, {"type": "step", "data": {"action": action}}, STEP, RESET)
    assert flaw["data"] == {"code": "EXECUTION_ERROR", "message": f"the environment failed: {told}"}
    assert after["data"]["message"] == "there is no episode; send a reset"
    assert again["type"] == "observation"


def test_what_this_machine_lacks_is_not_told_to_clients() -> None:
    flaw = answers({"type": "reset", "data": {"split": "test"}})[0]["data"]
    assert flaw["code"] == "EXECUTION_ERROR"
    assert "secret" not in flaw["message"]


def test_a_defect_in_an_environment_ends_its_own_session_alone() -> None:
    async def talk(end: Talk) -> Any:
        async with end.session() as one, end.session() as other:
            await said(one, RESET)
            await said(other, RESET)
            await one.send_json({"type": "step", "data": {"action": "defect"}})
            ended = (await one.receive()).type.name
            return ended, (await said(other, STEP))["data"]["observation"]["text"]

    assert talked(talk) == ("CLOSE", "1 one")


def test_each_session_has_an_environment_of_its_own() -> None:
    async def talk(end: Talk) -> Any:
        async def play(number: int) -> list[str]:
            async with end.session() as socket:
                await said(socket, {"type": "reset", "data": {"task_id": "t3"}})
                action = {"type": "step", "data": {"action": f"of {number}"}}
                return [(await said(socket, action))["data"]["observation"]["text"] for _ in range(3)]

        return await asyncio.gather(*(play(number) for number in range(20)))

    assert talked(talk) == [[f"{step} of {number}" for step in (1, 2, 3)] for number in range(20)]


def test_messages_that_are_sent_ahead_are_answered_in_order() -> None:
    async def talk(end: Talk) -> Any:
        async with end.session() as socket:
            for message in (RESET, *[{"type": "state"}] * 50, STEP):
                await socket.send_json(message)
            kinds = [(await socket.receive_json())["type"] for _ in range(52)]
            return kinds

    assert talked(talk) == ["observation", *["state"] * 50, "observation"]


def test_one_session_too_many_is_told_so() -> None:
    async def talk(end: Talk) -> Any:
        async with end.session() as first:
            await said(first, RESET)
            async with end.session() as second:
                full = await second.receive_json()
                closed = (await second.receive()).type.name
            await first.send_str('{"type": "close"}')
            await first.receive()
        async with end.session() as third:
            return full["data"], closed, (await said(third, RESET))["type"]

    full, closed, after = talked(talk, ServerLimits(sessions=1))
    assert (full["code"], full["active_sessions"], full["max_sessions"]) == ("CAPACITY_REACHED", 1, 1)
    assert (closed, after) == ("CLOSE", "observation")


def test_a_message_that_is_too_long_ends_its_session() -> None:
    async def talk(end: Talk) -> Any:
        async with end.session() as socket:
            await said(socket, RESET)
            await socket.send_str("x" * (LARGEST_MESSAGE + 1))
            ended = await socket.receive()
        async with end.session() as socket:
            return ended.type.name, ended.data, (await said(socket, RESET))["type"]

    assert talked(talk) == ("CLOSE", 1009, "observation")


def test_a_session_that_is_idle_ends() -> None:
    async def talk(end: Talk) -> Any:
        async with end.session() as socket:
            await said(socket, RESET)
            return (await socket.receive_json())["data"], (await socket.receive()).type.name

    told, ended = talked(talk, ServerLimits(idle=0.1))
    assert told == {"code": "SESSION_ERROR", "message": "idle for 0.1 s"}
    assert ended == "CLOSE"


def test_sessions_are_told_when_the_server_stops() -> None:
    async def talk(end: Talk) -> Any:
        async with end.session() as socket:
            await said(socket, RESET)
            last, _ = await asyncio.gather(socket.receive(), end.stop())
            return last.type.name, last.data

    assert talked(talk) == ("CLOSE", 1001)


async def status(end: Talk, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    method = "GET" if body is None else "POST"
    async with end.http.request(method, end.url + path, data=body, headers=headers) as response:
        return response.status, await response.json()


def test_a_token_is_asked_for_everywhere_but_at_health() -> None:
    async def talk(end: Talk) -> Any:
        right, wrong = {"Authorization": "Bearer s3cret"}, {"Authorization": "Bearer \u00e9"}
        refused = []
        for headers in ({}, wrong):
            with pytest.raises(aiohttp.WSServerHandshakeError) as flaw:
                await end.session(**headers)
            refused.append(flaw.value.status)
        async with end.session(**right) as socket:
            played = (await said(socket, RESET))["type"]
        states = [(await status(end, path))[0] for path in ("/health", "/schema", "/alfworld/splits")]
        return refused, played, states, (await status(end, "/schema", **right))[0]

    assert talked(talk, ServerLimits(token="s3cret")) == ([401, 401], "observation", [200, 401, 401], 200)


def test_pages_in_a_browser_are_refused() -> None:
    async def talk(end: Talk) -> Any:
        return [(await status(end, path, Origin="http://evil.example"))[0] for path in ("/ws", "/schema", "/health")]

    assert talked(talk) == [403, 403, 403]


def test_the_task_api_lists_what_can_be_asked_for() -> None:
    async def talk(end: Talk) -> Any:
        return [
            (await status(end, "/list_environments"))[1],
            (await status(end, "/alfworld/splits"))[1],
            (await status(end, "/alfworld/num_tasks", '{"split": "train"}'))[1],
            (await status(end, "/alfworld/task", '{"split": "train", "index": 1}'))[1]["task"]["id"],
            [
                card["index"]
                for card in (await status(end, "/alfworld/task_range", '{"split": "train", "start": 1}'))[1]["tasks"]
            ],
            len((await status(end, "/alfworld/tasks", '{"split": "train"}'))[1]["tasks"]),
        ]

    assert talked(talk) == [
        ["alfworld"],
        [{"name": "train", "type": "train"}, {"name": "test", "type": "test"}],
        {"num_tasks": 3},
        "t2",
        [1, 2],
        3,
    ]


@pytest.mark.parametrize("kind", ["application/json; charset=nonsense", "text/plain; charset=base64", "x; charset"])
def test_a_body_in_a_charset_that_does_not_exist_is_refused(kind: str) -> None:
    async def talk(end: Talk) -> Any:
        url = f"{end.url}/alfworld/tasks"
        async with end.http.post(url, data=b'{"split": 3}', headers={"Content-Type": kind}) as answer:
            return answer.status

    assert talked(talk) == 400


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[",
        "[]",
        "{}",
        '{"split": 3}',
        '{"split": "nope"}',
        '{"split": "train", "index": "0"}',
        '{"split": "train", "index": -1}',
        '{"split": "train"}',
        "[" * 60_000,
    ],
)
def test_a_bad_question_about_tasks_is_refused(body: str) -> None:
    async def talk(end: Talk) -> Any:
        return (await status(end, "/alfworld/task", body))[0]

    assert talked(talk) == 400
