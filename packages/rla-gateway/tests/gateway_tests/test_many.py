"""Many episodes at once, and requests that are sent again."""

from __future__ import annotations

import asyncio

from gateway_tests.playing import chat, play, task_of
from rla.llm.base import Completion, Request
from rla.llm.factory import ScriptedGenerator
from rla.seeds import derive


def numbered(request: Request, seed: int) -> list[int]:
    return [*chat().encode(str(seed % 1000)), chat().end_id]


def test_64_episodes_at_once() -> None:
    source = """
talk = [user(os.environ["AGENT_INSTRUCTION"])]
for _ in range(3): talk += [ask(talk), user("more")]
"""
    tasks = [task_of(instruction=str(number)) for number in range(16)]
    found = play(source, numbered, tasks=tasks, count=4)
    assert len(found) == 64
    for one in found:
        assert (one.outcome, len(one.segments)) == (1, 1)
        assert one.steps[0].observation == one.instruction
        assert [step.reply for step in one.steps] == [str(derive(one.seed, number) % 1000) for number in range(3)]


AGAIN = """
import socket
body = json.dumps({"messages": [user("x")]}).encode()
head = "POST %s/chat/completions HTTP/1.1\\r\\nAuthorization: Bearer %s\\r\\nContent-Length: %d\\r\\n\\r\\n"
def drop():
    wire = socket.create_connection((base.hostname, base.port))
    wire.sendall((head % (base.path, os.environ["OPENAI_API_KEY"], len(body))).encode() + body)
    wire.close()
"""


def test_a_request_whose_connection_was_lost_is_not_a_second_step() -> None:
    source = f"""{AGAIN}
drop()
time.sleep(0.3)
first = post(body)[1]
second = post(body)[1]
third = post(body, **{{"x-stainless-retry-count": "1"}})[1]
sys.exit(first["id"] == second["id"] or second["id"] != third["id"])
"""
    (one,) = play(source, numbered)
    assert (one.outcome, len(one.steps)) == (1, 2)  # the second one asks for another reply


class Slow(ScriptedGenerator):
    async def generate(self, request: Request) -> list[Completion]:
        await asyncio.sleep(0.3)
        return await super().generate(request)


def test_a_request_that_is_sent_again_before_its_answer() -> None:
    source = f"""{AGAIN}
drop()
time.sleep(0.05)
drop()
time.sleep(0.05)
post(body)
"""
    (one,) = play(source, Slow(numbered))
    assert (one.outcome, len(one.steps)) == (1, 1)
