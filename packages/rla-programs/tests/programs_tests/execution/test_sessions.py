"""Commands of the user's, in a box and without one: what they get, what they may take, and what is left of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rla_programs.execution import Limits, boxed_command
from rla_programs.execution.boxed_command import PORT, CommandBox
from rla_programs.execution.session import LAST_S, Session, supervised
from rla_programs.execution.supervisor import MOST_CONNECTIONS, MOST_KEPT, descendants

from programs_tests.execution.sandboxes import gone

PYTHON = [sys.executable, "-I", "-S", "-c"]
LIMITS = Limits(processes=40, memory_mb=400, file_mb=4)
MARK = "mark-of-a-test"
# A process that nobody knows: an orphan in a session of its own, without the environment.
HIDDEN = """
import os, subprocess, sys
sleeping = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
def hidden():
    if os.fork() == 0:
        print(subprocess.Popen(sleeping, env={}, start_new_session=True).pid, flush=True)
        os._exit(0)
    os.wait()
"""


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    async def timed() -> Any:
        async with asyncio.timeout(60):
            return await main()

    return asyncio.run(timed())


def plain(source: str, limits: Limits = LIMITS) -> Session:
    return Session(supervised([*PYTHON, source], limits), env=os.environ | {"MARK": MARK}, mark=MARK)


async def finished(session: Session) -> Session:
    await session.ended
    await session.end()
    return session


def test_a_command_has_a_status_and_the_end_of_its_output() -> None:
    async def main() -> None:
        done = await finished(plain("print('x' * 5000 + ' the end'); raise SystemExit(7)"))
        assert (done.status(), done.crowded, len(done.output())) == (7, False, 2000 - 1)
        assert done.output().endswith("x the end")
        killed = await finished(plain("import os; os.kill(os.getpid(), 9)"))
        assert killed.status() == 256 - 9
        missing = Session(supervised(["no-such-program"], None), env=os.environ, mark=MARK)
        await finished(missing)
        assert (missing.status(), missing.output()) == (127, "no-such-program: No such file or directory")

    run(main)


@pytest.mark.parametrize("wait", ["", "import time; time.sleep(600)"])
def test_orphans_in_other_sessions_end_with_it(wait: str) -> None:
    async def main() -> None:
        session = plain(f"{HIDDEN}\nfor _ in range(3): hidden()\n{wait}")
        while len(session.output().split()) < 3:
            await asyncio.sleep(0.02)
        pids = {int(pid) for pid in session.output().split()}
        await session.end()
        assert len(pids) == 3 and not any(Path(f"/proc/{pid}").exists() for pid in pids)

    run(main)


def test_a_stopped_supervisor_does_not_save_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rla_programs.execution.session.LAST_S", 0.3)

    async def main() -> None:
        session = plain(f"{HIDDEN}\nhidden()\nos.kill(os.getppid(), {signal.SIGSTOP})\nimport time; time.sleep(600)")
        while not session.output():
            await asyncio.sleep(0.02)
        pid, state = int(session.output()), Path(f"/proc/{session.pid}/stat")
        while ") T " not in state.read_text():  # the program stops its supervisor after it has told the number
            await asyncio.sleep(0.02)
        await session.end()
        assert session.status() == -signal.SIGKILL and gone({pid})

    run(main)


def test_processes_in_sessions_of_their_own_are_counted_and_killed() -> None:
    """Each one starts another until there are 128: an exponential bomb with an end."""
    source = """
import os, time
for _ in range(7):
    if os.fork() == 0: os.setsid()
time.sleep(600)
"""

    async def main() -> None:
        since, before = time.monotonic(), set(descendants(os.getpid())[0])
        session = await finished(plain(source))
        assert session.crowded and time.monotonic() - since < 10
        assert set(descendants(os.getpid())[0]) <= before

    run(main)


def test_threads_count_as_well() -> None:
    source = "import threading, time\nfor _ in range(60): threading.Thread(target=time.sleep, args=(600,)).start()"

    async def main() -> None:
        assert (await finished(plain(source, Limits(processes=40, memory_mb=4000)))).crowded

    run(main)


def test_a_signal_to_its_own_group_reaches_the_command_alone() -> None:
    async def main() -> None:
        done = await finished(plain("import os, signal; os.killpg(os.getpgrp(), signal.SIGTERM)"))
        assert done.status() == 256 - signal.SIGTERM  # and not the supervisor's own 143

    run(main)


TAKING = """
import errno, os
def failure(act):
    try: act()
    except (OSError, MemoryError) as error: return getattr(error, "errno", "memory")
def write(path, size):
    with open(path, "wb") as file: file.write(bytes(size))
os.chdir(os.environ["PLACE"])
print([failure(lambda: bytearray(500 << 20)), failure(lambda: bytearray(50 << 20)),
       failure(lambda: write("large", 5 << 20)), failure(lambda: [write(str(n), 1 << 20) for n in range(6)])])
"""


def test_the_memory_of_a_process_and_the_size_of_a_file_are_limited(tmp_path: Path) -> None:
    async def main() -> str:
        command = supervised([*PYTHON, TAKING], LIMITS)
        return (await finished(Session(command, env={"PLACE": str(tmp_path)}, mark=MARK))).output()

    assert run(main) == "['memory', None, 27, None]"  # EFBIG; of small files there may be many


KINDS = pytest.mark.parametrize("kind", ["as root or user", "with a user namespace"])


def a_box(kind: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> CommandBox:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is missing")
    if kind == "with a user namespace":
        monkeypatch.setattr(boxed_command, "is_root", lambda: False)
        if subprocess.run(["bwrap", "--unshare-user", "--ro-bind", "/", "/", "true"], check=False).returncode:
            pytest.skip("no user namespaces here")
    return CommandBox(readable=[str(Path(sys.executable).parents[1])], limits=LIMITS, **more)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/task.json").write_text("the task")
    return tmp_path


@pytest.fixture
def echoing(place: Path) -> Iterator[list[socket.socket]]:
    """At the place's socket, a server that says what it hears; the connections that it has accepted."""
    listening, accepted = socket.socket(socket.AF_UNIX), list[socket.socket]()
    listening.bind(str(place / "socket"))
    (place / "socket").chmod(0o666)
    listening.listen(512)

    def echo(client: socket.socket) -> None:
        while data := client.recv(1 << 16):
            client.sendall(data)
        client.close()

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            accepted.append(client)
            threading.Thread(target=echo, args=(client,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield accepted
    listening.shutdown(socket.SHUT_RDWR)
    thread.join()
    listening.close()


def boxed(box: CommandBox, source: str, place: Path, **env: str) -> Session:
    return box.session(
        [*PYTHON, source],
        env={"PLACE": str(place / "work"), **env},
        folder=place / "work",
        socket=place / "socket",
        mark=MARK,
    )


@KINDS
def test_a_box_forwards_connections_and_keeps_files(
    kind: str, monkeypatch: pytest.MonkeyPatch, place: Path, echoing: list[socket.socket]
) -> None:
    source = f"""
import os, socket
os.chdir(os.environ["HOME"])
wire = socket.create_connection(("127.0.0.1", {PORT}))
wire.sendall(b"x" * 300_000)
heard = b""
while len(heard) < 300_000: heard += wire.recv(1 << 16)
open("heard", "wb").write(heard)
os.makedirs("a/b")
open("a/b/c", "w").write(open("task.json").read() + os.environ["WORD"])
os.symlink("/etc/passwd", "link")
os.mkfifo("pipe")
open("closed", "w").write("c")
os.chmod("closed", 0)
raise SystemExit(5)
"""

    async def main() -> None:
        box = a_box(kind, monkeypatch)
        session = await finished(boxed(box, source, place, WORD=" and a word"))
        assert session.status() == 5, session.output()

    run(main)
    work = place / "work"
    assert {str(path.relative_to(work)) for path in work.rglob("*")} == {"a", "a/b", "a/b/c", "heard", "task.json"}
    assert (work / "a/b/c").read_text() == "the task and a word"
    assert (work / "heard").read_bytes() == b"x" * 300_000
    assert (work / "task.json").read_text() == "the task"


FEW = 300  # files that a box keeps in fast tests


@KINDS
@pytest.mark.parametrize(
    ("made", "whole"),
    [
        ("[os.link('first', str(number)) for number in range(30)]", True),  # 3 MB each, 90 MB if each were a copy
        ("[open(str(number), 'w').truncate(3 << 20) for number in range(30)]", False),  # holes
        (f"[open(str(number), 'w').close() for number in range({FEW})]", False),
        (f"[os.symlink('nothing', str(number)) for number in range({FEW})]", False),
        ("os.utime('first', ns=((2**62) * 2 - 1,) * 2)", True),
        ("import socket; socket.socket(socket.AF_UNIX).bind('here')", True),
    ],
    ids=["links", "holes", "files", "symlinks", "time", "socket"],
)
def test_what_a_box_leaves_is_bounded(
    made: str, whole: bool, kind: str, monkeypatch: pytest.MonkeyPatch, place: Path, echoing: list[socket.socket]
) -> None:
    box = a_box(kind, monkeypatch)
    box._script = box._script.replace(b"MOST_KEPT = 1 << 15", b"MOST_KEPT = %d" % FEW)
    assert b"MOST_KEPT = %d" % FEW in box._script
    assert left(box, made, place) == whole


@pytest.mark.slow
@pytest.mark.parametrize("make", ["open(str(number), 'w').close()", "os.symlink('nothing', str(number))"])
def test_of_many_files_a_box_leaves_its_own_limit(
    make: str, monkeypatch: pytest.MonkeyPatch, place: Path, echoing: list[socket.socket]
) -> None:
    assert not left(a_box("as root or user", monkeypatch), f"[{make} for number in range({MOST_KEPT})]", place)
    assert len(list((place / "work").iterdir())) <= MOST_KEPT + 1  # and the task, which was there


def left(box: CommandBox, made: str, place: Path) -> bool:
    """Whether a box keeps all files of a command that makes a file of 3 MB and then runs `made`."""
    source = f"import os; os.chdir(os.environ['HOME']); open('first', 'w').truncate(3 << 20); {made}"

    async def main() -> bool:
        session = await finished(boxed(box, source, place))
        assert session.status() == 0, session.output()
        return session.whole

    whole: bool = run(main)
    sizes = {path.stat().st_ino: path.stat().st_size for path in (place / "work").rglob("*")}
    assert sum(sizes.values()) <= LIMITS.file_mb << 20
    assert not whole or (place / "work/first").stat().st_size == 3 << 20
    return whole


@KINDS
def test_the_files_of_a_box_are_kept_when_it_is_killed(
    kind: str, monkeypatch: pytest.MonkeyPatch, place: Path, echoing: list[socket.socket]
) -> None:
    source = "import os, time; open(os.environ['HOME'] + '/new', 'w').write('n'); print('written'); time.sleep(600)"

    async def main() -> float:
        session = boxed(a_box(kind, monkeypatch), source.replace("'written'", "'written', flush=True"), place)
        while not session.output():
            await asyncio.sleep(0.02)
        since = time.monotonic()
        await session.end()
        return time.monotonic() - since

    assert run(main) < LAST_S
    assert (place / "work/new").read_text() == "n"


@KINDS
def test_a_box_limits_memory_and_all_files_together(
    kind: str, monkeypatch: pytest.MonkeyPatch, place: Path, echoing: list[socket.socket]
) -> None:
    async def main() -> str:
        return (await finished(boxed(a_box(kind, monkeypatch), TAKING, place))).output()

    assert run(main) == "['memory', None, 28, 28]"  # ENOSPC


def test_a_fork_bomb_ends_with_its_box(
    monkeypatch: pytest.MonkeyPatch, place: Path, echoing: list[socket.socket]
) -> None:
    source = """
import os, sys, time
try:
    for _ in range(8): os.fork()  # at most 256, should the limit fail
except OSError: pass
time.sleep(600)
"""

    async def main() -> None:
        before = set(descendants(os.getpid())[0])
        session = boxed(a_box("as root or user", monkeypatch), source, place)
        while len(inside := set(descendants(session.pid)[0])) < 20:
            await asyncio.sleep(0.02)
        assert len(inside) <= LIMITS.processes + 2
        await session.end()
        assert gone(set(descendants(os.getpid())[0]) - before | inside)

    run(main)


def test_connections_of_a_box_wait_for_a_place(
    monkeypatch: pytest.MonkeyPatch, place: Path, echoing: list[socket.socket]
) -> None:
    count = MOST_CONNECTIONS + 20
    source = f"""
import socket
kept = [socket.create_connection(("127.0.0.1", {PORT})) for _ in range({count})]
kept[0].recv(1)
while len(kept) > {MOST_CONNECTIONS}: kept.pop(0).close()
kept[-1].sendall(b"y")
raise SystemExit(kept[-1].recv(1) != b"y")
"""

    async def main() -> None:
        session = boxed(a_box("as root or user", monkeypatch), source, place)
        while len(echoing) < MOST_CONNECTIONS:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        assert len(echoing) == MOST_CONNECTIONS
        for client in tuple(echoing):  # those that came first: the box closes some of them as soon as one has its byte
            with suppress(OSError):
                client.sendall(b"g")
        await finished(session)
        assert (session.status(), len(echoing)) == (0, count), session.output()

    run(main)


STARTS = """
import asyncio, os, sys
from pathlib import Path
from rla_programs.execution import Limits, boxed_command
from rla_programs.execution.session import LAST_S, Session, supervised
command, limits, place = ["sh", "-c", "setsid sleep 600 & sleep 601"], Limits(processes=40), Path(sys.argv[2])
async def main():
    if sys.argv[1] == "plain":
        session = Session(supervised(command, limits), env=os.environ, mark="m")
    else:
        box = boxed_command.CommandBox(readable=[], limits=limits)
        session = box.session(command, env={}, folder=place / "work", socket=place / "socket", mark="m")
    await session.ended
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["plain", "boxed"])
def test_nothing_outlives_a_process_that_was_killed(kind: str, place: Path, echoing: list[socket.socket]) -> None:
    if kind == "boxed" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is missing")
    stage = subprocess.Popen([sys.executable, "-c", STARTS, kind, str(place)])
    until = time.monotonic() + 30
    while time.monotonic() < until:
        pids = set(descendants(stage.pid)[0])
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids if Path(f"/proc/{pid}").exists()]
        if {b"sleep\x00600\x00", b"sleep\x00601\x00"} <= set(commands):
            break
        time.sleep(0.05)
    else:
        pytest.fail(f"it did not start: {commands}")
    stage.kill()
    stage.wait()
    assert gone(pids)
