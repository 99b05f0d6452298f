"""An agent that means harm hurts its own episode, and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from rla_gateway.gateway import Gateway
from rla_programs.execution.supervisor import descendants

from gateway_tests.playing import BOXED, READABLE, Slow, chat, play, task_of
from rla.llm.base import Request
from rla.llm.chat import ChatFormat
from rla.models.init import new_tokenizer
from rla.store.records import Trajectory

# The first task's program plays by the rules, while the second one's does what the test says.
TWO = (task_of(instruction="good"), task_of(instruction="bad"))
SPLIT = """
if os.environ["AGENT_INSTRUCTION"] == "good":
    talk = [user("one")]
    for _ in range(3):
        talk += [ask(talk), user("more")]
        time.sleep(0.1)
    sys.exit(0)
"""


def echo(request: Request, seed: int) -> list[int]:
    return [*chat().encode("ok"), chat().end_id]


def beside_good(source: str, *, reply: Any = echo, **own: Any) -> Trajectory:
    """The hostile program's episode, once the good one's is seen to be untouched."""
    found = play(SPLIT + source, reply, tasks=TWO, **own)
    good, bad = sorted(found, key=lambda one: one.instruction, reverse=True)
    assert (good.instruction, good.outcome, good.error) == ("good", 1, None)
    assert [step.segment for step in good.steps] == [0, 0, 0]
    return bad


def test_a_wrong_key() -> None:
    bad = beside_good("""
ask([user("x")])
status, found = post("{}", key="sk-wrong")
sys.exit(7 if (status, found["error"]["code"]) != (401, "invalid_api_key") else 0)
""")
    assert (bad.outcome, len(bad.steps)) == (1, 1)


def test_the_key_of_another_episode(tmp_path: Path) -> None:
    """Both episodes write their addresses and keys down. Each tries the other's key at its own address, its own key at
    the other's, and then its own key at its own.
    """
    source = f"""
me = os.environ["AGENT_INSTRUCTION"]
other = {{"good": "bad", "bad": "good"}}[me]
ask([user("x")])
mine = os.environ["OPENAI_BASE_URL"] + " " + os.environ["OPENAI_API_KEY"]
with open("{tmp_path}/" + me + ".part", "w") as file: file.write(mine)
os.rename("{tmp_path}/" + me + ".part", "{tmp_path}/" + me)
while not os.path.exists("{tmp_path}/" + other): time.sleep(0.01)
with open("{tmp_path}/" + other) as file: address, key = file.read().split()
body = json.dumps({{"messages": [user("intruding")]}})
statuses = [post(body, key=key)[0], post(body, base=urlsplit(address))[0], post(body)[0]]
if key == os.environ["OPENAI_API_KEY"] or address == os.environ["OPENAI_BASE_URL"]: sys.exit(3)
open("{tmp_path}/" + me + ".done", "w").close()
while not os.path.exists("{tmp_path}/" + other + ".done"): time.sleep(0.01)
sys.exit(statuses != [401, 401, 200])
"""
    found = play(source, echo, tasks=TWO)
    assert [(one.outcome, len(one.steps)) for one in found] == [(1, 2), (1, 2)]
    assert [step.observation for one in found for step in one.steps][1::2] == ["(a new conversation)\nintruding"] * 2


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ('wire.putheader("Content-Length", str(100 << 20)); wire.endheaders()', 413),
        ('wire.putheader("Content-Length", "1"); wire.endheaders(); wire.send(b"{")', 400),
        ('wire.putheader("Content-Length", "2"); wire.endheaders(); wire.send(b"{}")', 400),
    ],
)
def test_requests_that_are_refused(sent: str, status: int) -> None:
    bad = beside_good(f"""
ask([user("x")])
wire = http.client.HTTPConnection(base.hostname, base.port)
wire.putrequest("POST", base.path + "/chat/completions")
wire.putheader("Authorization", "Bearer " + os.environ["OPENAI_API_KEY"])
{sent}
sys.exit(wire.getresponse().status != {status})
""")
    assert (bad.outcome, len(bad.steps)) == (1, 1)


def test_100_mb_and_an_endless_stream() -> None:
    """The gateway stops reading, whatever the program goes on to send."""
    bad = beside_good("""
ask([user("x")])
def endless():
    while True: yield b" " * 65536
for body in (b" " * (100 << 20), endless()):
    try: status = post(body)[0]
    except OSError: status = 413  # it hung up
    if status != 413: sys.exit(7)
""")
    assert (bad.outcome, len(bad.steps)) == (1, 1)


def test_an_answer_that_is_never_read() -> None:
    bad = beside_good(
        """
for number in range(3):
    wire = http.client.HTTPConnection(base.hostname, base.port)
    key = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    wire.request("POST", base.path + "/chat/completions", json.dumps({"messages": [user(str(number))]}), key)
    globals()["kept%d" % number] = wire
time.sleep(60)
""",
        idle_s=2.0,
    )
    assert (bad.outcome, bad.stop_reason, len(bad.steps)) == (-1, "ended", 3)
    assert "no request for too long" in bad.final_observation


def test_too_many_requests_at_once() -> None:
    """Of 80, four are answered, 60 wait until the episode has no more requests, and the others are refused at once."""
    bad = beside_good(
        """
found = []
def one(number): found.append(post(json.dumps({"messages": [user(str(number))]}))[0])
threads = [threading.Thread(target=one, args=(number,)) for number in range(80)]
for thread in threads: thread.start()
for thread in threads: thread.join()
counts = {status: found.count(status) for status in set(found)}
if counts.pop(200) != 4 or counts.pop(429) < 80 - 64 - 4: sys.exit(1)
sys.exit(set(counts) != {400})
""",
        reply=Slow(1.0, echo),
        max_steps=4,
    )
    assert (bad.outcome, len(bad.steps)) == (1, 4)


@pytest.mark.parametrize("sandbox", [False, pytest.param(True, marks=BOXED)])
def test_connections_without_a_key(sandbox: bool) -> None:
    """There are few of an agent at a time. Those without its key make room for one that has sent it."""
    most, before = 0, len(os.listdir("/proc/self/fd"))

    async def count(gateway: Gateway) -> None:
        nonlocal most
        while not gateway.episodes:
            await asyncio.sleep(0.01)
        while gateway.episodes:
            most = max(most, len(os.listdir("/proc/self/fd")))
            await asyncio.sleep(0.01)

    source = """
import socket
key = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
mine = http.client.HTTPConnection(base.hostname, base.port)
def reply(text):
    mine.request("POST", base.path + "/chat/completions", json.dumps({"messages": [user(text)]}), key)
    answer = mine.getresponse()
    return answer.status, answer.read() and mine.sock
first = reply("x")
kept, until = [], time.monotonic() + 8
while len(kept) < 1500 and time.monotonic() < until:
    try:
        kept.append(socket.create_connection((base.hostname, base.port), timeout=1))
        kept[-1].sendall(b"GET /v1/models HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer no\\r\\n\\r\\n")
    except OSError: pass
SECOND
"""
    if sandbox:  # in which other connections wait, those of a client as well
        bad = beside_good(source.replace("SECOND", ""), sandbox=True, readable=READABLE, during=count)
    else:
        bad = beside_good(source.replace("SECOND", 'sys.exit(reply("y") != first)'), during=count)
    assert (bad.outcome, len(bad.steps)) == (1, 1 if sandbox else 2)
    assert most - before < 250


@pytest.mark.parametrize("sandbox", [False, pytest.param(True, marks=BOXED)])
def test_memory_and_files_are_limited(sandbox: bool) -> None:
    source = f"""
def failure(act):
    try: act()
    except (OSError, MemoryError) as error: return type(error)
def write(name, size):
    with open(os.environ["AGENT_FOLDER"] + "/" + name, "wb") as file: file.write(bytes(size))
ask([user("x")])
found = [failure(lambda: bytearray(400 << 20)), failure(lambda: write("large", 3 << 20))]
found.append(failure(lambda: [write(str(number), 1 << 20) for number in range(4)]))
sys.exit(found != [MemoryError, OSError, {"OSError" if sandbox else "None"}])
"""
    bad = beside_good(source, memory_mb=300, file_mb=2, sandbox=sandbox, readable=READABLE)
    assert (bad.outcome, bad.error) == (1, None)


@BOXED
def test_a_fork_bomb_in_the_sandbox() -> None:
    """The kernel refuses its forks, and it is stopped as one that asks for nothing."""
    source = """
ask([user("x")])
while True:
    try: os.fork()
    except OSError: time.sleep(1)
"""
    bad = beside_good(source, processes=40, sandbox=True, readable=READABLE, idle_s=5.0)
    assert (bad.outcome, bad.stop_reason) == (-1, "ended")
    assert "no request for too long" in bad.final_observation


def test_too_many_processes() -> None:
    """Without the sandbox they are counted, in whatever session they are, and killed together."""
    source = """
ask([user("x")])
for _ in range(7):
    if os.fork() == 0: os.setsid()
time.sleep(600)
"""
    before = set(descendants(os.getpid())[0])
    bad = beside_good(source, processes=40)
    assert (bad.outcome, bad.stop_reason) == (-1, "ended")
    assert "too many processes" in bad.final_observation
    assert set(descendants(os.getpid())[0]) <= before


def test_everything_that_it_started_is_gone(tmp_path: Path) -> None:
    """Children in its session, in a group and in a session of their own, and orphans without its environment."""
    source = f"""
import subprocess
ask([user("x")])
sleeping = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
own = [subprocess.Popen(sleeping, **more) for more in ({{}}, {{"process_group": 0}}, {{"start_new_session": True}})]
reading, writing = os.pipe()
if os.fork() == 0:
    own = [subprocess.Popen(sleeping, env={{}}, start_new_session=True)]
    os.write(writing, str(own[0].pid).encode())
    os._exit(0)
os.wait()
pids = [*(str(one.pid) for one in own), os.read(reading, 64).decode()]
with open("{tmp_path}/pids", "w") as file: file.write(" ".join(pids))
"""
    (one,) = play(source, echo)
    assert one.outcome == 1
    pids = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
    assert len(pids) == 4 and not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_killed_agent(tmp_path: Path) -> None:
    async def kill(gateway: Gateway) -> None:
        path = tmp_path / "pid"
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.01)
        os.kill(int(path.read_text()), signal.SIGKILL)

    source = f"""
ask([user("x")])
with open("{tmp_path}/pid", "w") as file: file.write(str(os.getpid()))
time.sleep(60)
"""
    (one,) = play(source, echo, during=kill)
    assert (one.outcome, one.stop_reason, len(one.steps)) == (-1, "ended", 1)


def test_an_agent_that_hangs_is_stopped() -> None:
    since = time.monotonic()
    (one,) = play('ask([user("x")])\ntime.sleep(60)', echo, idle_s=2.0)
    assert time.monotonic() - since < 20
    assert (one.outcome, one.stop_reason) == (-1, "ended")


def test_an_agent_that_asks_without_end() -> None:
    """At the limit of steps it reads an error. It may end by itself, and its status counts."""
    source = """
while True:
    status, found = post(json.dumps({"messages": [user("x")]}))
    if status != 200: sys.exit(found["error"]["code"] != "context_length_exceeded")
"""
    (one,) = play(source, echo, max_steps=3)
    assert (one.outcome, one.stop_reason, len(one.steps)) == (1, "won", 3)


def test_a_conversation_that_does_not_fit_the_context() -> None:
    source = """
talk = [user("x")]
while True:
    status, found = post(json.dumps({"messages": talk}))
    if status != 200: sys.exit(3)
    talk += [found["choices"][0]["message"], user("word " * 20)]
"""
    (one,) = play(source, echo, context=200, max_steps=50)
    assert (one.outcome, one.stop_reason) == (-1, "context")
    assert 1 <= len(one.steps) < 10


def test_an_agent_that_prints_without_end() -> None:
    bad = beside_good("""
ask([user("x")])
until = time.monotonic() + 0.5
while time.monotonic() < until: print("x" * 10_000)
""")
    assert bad.outcome == 1


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ('sys.exit("no endpoint for me")', "status 1 and no request: no endpoint for me"),
        ("time.sleep(60)", "no request"),
    ],
)
def test_an_agent_without_a_request_is_an_error(source: str, reason: str) -> None:
    (one,) = play(source, echo, idle_s=2.0)
    assert one.stop_reason == "env_error" and reason in str(one.error)


def test_roles_that_the_template_refuses() -> None:
    tokenizer = new_tokenizer(["a"], context=4096, exact=True)
    refusing = "{% if message['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    tokenizer.chat_template = str(tokenizer.chat_template).replace("%}", "%}" + refusing, 1)
    source = SPLIT + 'ask([{"role": "system", "content": "x"}, user("y")])'
    found = {one.instruction: one for one in play(source, echo, tasks=TWO, format=ChatFormat(tokenizer))}
    assert (found["good"].outcome, found["bad"].stop_reason) == (1, "env_error")
    assert "no system" in str(found["bad"].error)


@BOXED
def test_the_sandbox_hides_other_processes_files_and_networks(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    source = f"""
import socket
ask([user("x")])
open(os.environ["AGENT_FOLDER"] + "/own", "w").write("mine")
if os.path.exists("{tmp_path}/secret"): sys.exit(3)
if len([name for name in os.listdir("/proc") if name.isdigit()]) > 3: sys.exit(4)
if len(socket.if_nameindex()) != 1: sys.exit(5)
try: open("/usr/mark", "w")
except OSError: sys.exit(0)
sys.exit(6)
"""
    (one,) = play(source, echo, sandbox=True, readable=READABLE)
    assert (one.outcome, one.error) == (1, None), one.error
