"""Many episodes at once, and requests that are sent again."""

from __future__ import annotations

import asyncio

from rla_gateway.gateway import Gateway

from gateway_tests.playing import Slow, chat, play, task_of
from rla.llm.base import Request
from rla.seeds import derive


def numbered(request: Request, seed: int) -> list[int]:
    return [*chat().encode(str(seed % 1000)), chat().end_id]


def test_16_episodes_at_once() -> None:
    source = """
talk = [user(os.environ["AGENT_INSTRUCTION"])]
for _ in range(3): talk += [ask(talk), user("more")]
"""
    tasks = [task_of(instruction=str(number)) for number in range(4)]
    found = play(source, numbered, tasks=tasks, count=4)
    assert len(found) == 16
    for one in found:
        assert (one.outcome, len(one.segments)) == (1, 1)
        assert one.steps[0].observation == one.instruction
        assert [step.reply for step in one.steps] == [str(derive(one.seed, number) % 1000) for number in range(3)]


AGAIN = """
import socket
body = json.dumps({"messages": [user("x")]}).encode()
head = "POST %s/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer %s\\r\\n"
head += "Content-Length: %d\\r\\n\\r\\n"
def send():
    wire = socket.create_connection((base.hostname, base.port))
    wire.sendall((head % (base.path, os.environ["OPENAI_API_KEY"], len(body))).encode() + body)
    return wire
def drop():
    wire = send()
    time.sleep(0.1)
    wire.close()
    time.sleep(0.1)
"""


def test_a_request_whose_connection_was_lost_is_not_a_second_step() -> None:
    source = f"""{AGAIN}
drop()
time.sleep(1)
first = post(body)[1]
second = post(body)[1]
sys.exit(first["id"] == second["id"])
"""
    (one,) = play(source, Slow(0.6, numbered))
    assert (one.outcome, len(one.steps)) == (1, 2)  # the second one asks for another reply


def test_a_request_that_is_sent_again_before_its_answer() -> None:
    source = f"""{AGAIN}
drop()
drop()
post(body)
"""
    (one,) = play(source, Slow(1.0, numbered))
    assert (one.outcome, len(one.steps)) == (1, 1)


def test_a_retry_never_gets_the_reply_to_another_request() -> None:
    """The first try of the second request never came, or was refused: an equal one has its answer already."""
    source = f"""{AGAIN}
first = post(body)[1]
second = post(body, **{{"x-stainless-retry-count": "1"}})[1]
sys.exit(first["id"] == second["id"])
"""
    (one,) = play(source, numbered)
    assert (one.outcome, len(one.steps)) == (1, 2)


def test_a_retry_beside_an_equal_request_gets_its_own_reply() -> None:
    source = f"""{AGAIN}
answers = []
waiting = threading.Thread(target=lambda: answers.append(post(body)[1]["id"]))
waiting.start()
time.sleep(0.2)
drop()
answers.append(post(body)[1]["id"])
waiting.join()
sys.exit(len(set(answers)) != 2)
"""
    (one,) = play(source, Slow(1.0, numbered))
    assert (one.outcome, len(one.steps)) == (1, 2)


def test_requests_that_are_lost_again_and_again_leave_nothing_behind() -> None:
    source = f"""{AGAIN}
for _ in range(60):
    send().close()
    time.sleep(0.02)
post(body)
"""
    most = 0

    async def count(_: Gateway) -> None:
        nonlocal most
        since = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() - since < 2.5:
            most = max(most, len(asyncio.all_tasks()))
            await asyncio.sleep(0.02)

    (one,) = play(source, Slow(3.0, numbered), during=count)
    assert (one.outcome, len(one.steps)) == (1, 1)
    assert most < 20
