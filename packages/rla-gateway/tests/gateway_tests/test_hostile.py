"""An agent that means harm hurts its own episode, and nothing else."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from rla_gateway.gateway import Gateway
from rla_programs.execution.session import live_processes

from gateway_tests.playing import PYTHON, chat, play, task_of
from rla.llm.base import Request
from rla.llm.chat import ChatFormat
from rla.models.init import new_tokenizer
from rla.store.records import Trajectory

BOXED = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is missing")
READABLE = [str(Path(PYTHON[0]).parents[1])]  # the virtual environment
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


def beside_good(source: str, **own: Any) -> Trajectory:
    """The hostile program's episode, once the good one's is seen to be untouched."""
    found = play(SPLIT + source, echo, tasks=TWO, **own)
    good, bad = sorted(found, key=lambda one: one.instruction, reverse=True)
    assert (good.instruction, good.outcome, good.error) == ("good", 1, None)
    assert [step.segment for step in good.steps] == [0, 0, 0]
    return bad


def echo(request: Request, seed: int) -> list[int]:
    return [*chat().encode("ok"), chat().end_id]


def test_a_wrong_key() -> None:
    bad = beside_good("""
ask([user("x")])
status, found = post("{}", key="sk-wrong")
sys.exit(7 if (status, found["error"]["code"]) != (401, "invalid_api_key") else 0)
""")
    assert (bad.outcome, len(bad.steps)) == (1, 1)


def test_the_key_of_another_episode(tmp_path: Path) -> None:
    """Both episodes write their keys down; each tries the other's at its own address, and then at no address at all."""
    source = f"""
me = os.environ["AGENT_INSTRUCTION"]
other = {{"good": "bad", "bad": "good"}}[me]
ask([user("x")])
with open("{tmp_path}/" + me + ".part", "w") as file: file.write(os.environ["OPENAI_API_KEY"])
os.rename("{tmp_path}/" + me + ".part", "{tmp_path}/" + me)
while not os.path.exists("{tmp_path}/" + other): time.sleep(0.01)
with open("{tmp_path}/" + other) as file: key = file.read()
body = json.dumps({{"messages": [user("intruding")]}})
sys.exit(post(body, key=key)[0] != 401)
"""
    found = play(source, echo, tasks=TWO)
    assert [(one.outcome, len(one.steps)) for one in found] == [(1, 1), (1, 1)]


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
    bad = beside_good(
        """
found = []
def one(number): found.append(post(json.dumps({"messages": [user(str(number))]}))[0])
threads = [threading.Thread(target=one, args=(number,)) for number in range(80)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(not set(found) <= {200, 400, 429})
""",
        max_steps=4,
    )
    assert (bad.outcome, len(bad.steps)) == (1, 4)


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
    """Without the sandbox they are counted, and killed together."""
    source = """
ask([user("x")])
while os.fork(): time.sleep(0.002)
time.sleep(600)
"""
    bad = beside_good(source, processes=40)
    assert (bad.outcome, bad.stop_reason) == (-1, "ended")
    assert "too many processes" in bad.final_observation


def test_everything_that_it_started_is_gone(tmp_path: Path) -> None:
    """A child in its session, one in a group of its own, and one that has left the session."""
    source = f"""
import subprocess
ask([user("x")])
sleeping = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
own = [subprocess.Popen(sleeping, **more) for more in ({{}}, {{"process_group": 0}}, {{"start_new_session": True}})]
with open("{tmp_path}/pids", "w") as file: file.write(" ".join(str(one.pid) for one in own))
"""
    (one,) = play(source, echo)
    assert one.outcome == 1
    pids = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
    assert len(pids) == 3 and not pids & {pid for pid, _ in live_processes()}


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
