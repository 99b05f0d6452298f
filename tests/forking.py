"""`rla` and `python` for tests that start in a moment: each call is forked from a process that has imported torch, rla,
DVC and accelerate, which otherwise takes ten seconds of CPU time a call.

The program on the path hands its words, folder, variables and streams to that process. It passes signals on and ends as
the call ends, and the call is killed if the program is. The call has a session of its own. Tests of how processes of
`rla run` end with each other start real ones.

`worker` is an interpreter for pytest-xdist, so that the processes of `make test` need not import all of that either.
The variable FORKING names the folder of their server.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import weakref
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rla.envs.registry import load_config
from rla.pipeline import run as loop
from rla.pipeline.run import FORKABLE, PRELOADED
from rla.plugins import package_versions, registered
from rla.processes import leave
from tests.integration.pipelines import environment

ALSO = (
    *("accelerate.commands.launch", "torch.distributed.run", "dvc.cli", "dvc.repo", "dvc.commands.repro"),
    *("dvc.lock", "dvc.repo.datasets", "dvc.repo.experiments.queue.celery", "dvc.repo.plots", "dvc.scm", "networkx"),
    *("pygit2", "pyparsing", "ruamel.yaml", "hydra", "deepspeed", "matplotlib.backends.backend_svg"),
    *("matplotlib.figure", "peft", "rla.report.curves", "torch.utils.tensorboard", "transformers.trainer"),
    # Not trl's trainers: they import wandb, whose temporary folder would be removed as the first call ends.
    *("datasets", "trl.trainer.utils"),
)
FORKED = ("rla", "dvc", "accelerate.commands.launch")  # other modules get an interpreter of their own
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
words = [word for word in sys.argv[1:] if {name!r} != "python" or word != "-u"]
own = words[:1] and words[0].endswith(".py") or words[:1] == ["-m"] and words[1] in {forked!r}
own = own or words[:2] == ["-P", "-c"] and words[2].startswith("from rla_")
if {name!r} == "python" and not own:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
call = json.dumps([{name!r}, words, os.getcwd(), dict(os.environ)]).encode()
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
for number in {numbers!r}:
    signal.signal(number, lambda number, frame: server.send(bytes([number])))
socket.send_fds(server, [len(call).to_bytes(4, "big")], [0, 1, 2])
server.sendall(call)
for number in range(3):
    os.close(number)
told = server.recv(2)
if not told:
    sys.exit("the server of forked programs has ended")
status = int.from_bytes(told, "big", signed=True)
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if status != -9 else None
    os.kill(os.getpid(), -status)
os._exit(status)
"""


def forking_programs(folder: Path, *, owner: int) -> Path:
    """The folder of the programs, to be first on the path. All processes of tests that give the same folder share a
    server, which the first of them starts, and which ends with the process `owner`.
    """
    address, programs = folder / "socket", folder / "bin"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock, socket.socket(socket.AF_UNIX) as server:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if server.connect_ex(str(address)):  # there is none yet, or it has ended
            address.unlink(missing_ok=True)
            write_programs(programs, address)
            command = [sys.executable, "-m", "tests.forking", str(folder), str(owner), "serve"]
            variables = environment() | FORKABLE | {"HF_HUB_OFFLINE": "1"}  # which conftest.py would set too late
            log = folder / "log"  # of what libraries say as they are imported
            with log.open("w") as said:
                done = subprocess.run(
                    command, env=variables, stdout=said, stderr=said, start_new_session=True, check=False, timeout=300
                )
            assert done.returncode == 0, log.read_text()
    return programs


def write_programs(programs: Path, address: Path) -> None:
    programs.mkdir(exist_ok=True)
    for name in ("rla", "dvc", "loop", "python", "worker"):
        fields = {
            "python": sys.executable,
            "address": str(address),
            "name": name,
            "numbers": tuple(map(int, PASSED_ON)),
            "forked": FORKED,
        }
        (programs / name).write_text(CLIENT.format(**fields))
        (programs / name).chmod(0o755)


def serve(address: Path, owner: int) -> None:
    """Answer calls until the process `owner` ends. The process that was started ends once calls are answered, so that
    no call is a descendant of the tests that started the server.
    """
    end = os.pidfd_open(owner)
    environments = [entry.module for entry in registered("rla.envs").values()]
    for name in (*PRELOADED, *ALSO, *environments):
        import_module(name)
    load_config(None, ["env.name=alfworld"])  # and what is read once in each process
    package_versions()
    for one in list(weakref.finalize._registry):  # torch would unregister its operators as each call ends, for 0.1 s
        one.atexit = one.atexit and one.peek()[1].__module__ != "torch.library"
    assert len(os.listdir("/proc/self/task")) == 1, "a lock that another thread holds would stay locked in a fork"
    gc.freeze()  # a collection in a forked process would copy every page that holds a Python object
    gc.set_threshold(20_000, 20, 20)
    calls: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that tells their end: the call, its program
    with socket.socket(socket.AF_UNIX) as listening:
        begun = address.with_name("begun")
        listening.bind(str(begun))
        listening.listen(64)
        begun.rename(address)
        if os.fork() > 0:
            os._exit(0)
        while True:
            ready = select.select([listening, end, *calls, *(client for _, client in calls.values())], [], [])[0]
            if end in ready:
                break
            for ended, (pid, client) in list(calls.items()):
                if ended in ready:
                    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with contextlib.suppress(OSError):
                        client.send(status.to_bytes(2, "big", signed=True))
                    client.close()
                    os.close(ended)
                    del calls[ended]
                elif client in ready:
                    for number in client.recv(64) or bytes([signal.SIGKILL]):  # closed: the program was killed
                        os.kill(pid, number)
            if listening in ready:
                client = listening.accept()[0]
                if pid := begin(client, [listening, *(one for _, one in calls.values())], address.parent / "bin"):
                    calls[os.pidfd_open(pid)] = pid, client


def begin(client: socket.socket, others: list[socket.socket], programs: Path) -> int:
    """Fork the call that a program asks for. Its process id; 0 if the program was stopped before it had asked."""
    streams, wanted, read = list[int](), 0, b""
    client.settimeout(30)
    with contextlib.suppress(OSError):
        size, streams, _, _ = socket.recv_fds(client, 4, 3)
        wanted = int.from_bytes(size, "big")
        while len(read) < wanted and (more := client.recv(wanted - len(read))):
            read += more
    client.settimeout(None)
    whole = 0 < wanted == len(read)
    if whole and (pid := os.fork()) == 0:
        for one in (client, *others):
            one.close()
        become(*json.loads(read), streams=streams, programs=programs)
    for stream in streams:
        os.close(stream)
    return pid if whole else 0


def become(
    name: str, words: list[str], folder: str, variables: dict[str, str], *, streams: list[int], programs: Path
) -> None:
    """Make the call as a process of its own would, and leave as it would."""
    os.setsid()
    for number, own in enumerate(streams):
        os.dup2(own, number)
        os.close(own)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    places = variables.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [place for place in places if place and place not in sys.path]
    if name == "worker":
        gc.unfreeze()  # hypothesis looks for what refers to a generator of random numbers; conftest.py freezes again
    else:
        sys.executable = str(programs / "python")  # calls that this one makes are forked, too
        loop.start_server = lambda: None
        loop._run_forked = stage_of_loop
    words = ["-m", name, *words] if name in ("rla", "dvc") else words
    module, code = words[:1] == ["-m"], words[:2] in (["-P", "-c"], ["-u", "-c"])
    sys.argv = words[1:] if module else ["-c", *words[3:]] if code else words
    status = 0
    try:
        if name == "loop":  # as an ablation calls it
            loop.main()
        elif code:
            sys.modules["__main__"] = main = ModuleType("__main__")  # which other processes do not import
            exec(words[2], main.__dict__)
        elif module:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(words[0]).parent))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    leave(status)


def stage_of_loop(command: str, variables: dict[str, str]) -> int:
    """A stage of `rla run` is forked from the server of the tests instead of from one of the run's own."""
    return subprocess.run(command, shell=True, env=variables, check=False).returncode


if __name__ == "__main__":
    place, process, *serving = sys.argv[1:]
    if serving:
        serve(Path(place) / "socket", int(process))
    else:
        forking_programs(Path(place), owner=int(process))
