"""An `rla` for shell scripts of tests that starts in a moment: each call is forked from a process that has imported it.

The program on the path hands its words, folder, variables and streams to that process, and ends with the call's status.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from rla.pipeline.run import FORKABLE, PRELOADED
from tests.integration.pipelines import environment, until

CLIENT = """#!{python} -IS
import json, os, socket, sys
call = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [len(call).to_bytes(4, "big")], [0, 1, 2])
server.sendall(call)
status = server.recv(1)
sys.exit(status[0] if status else 1)
"""


@contextmanager
def forking_rla(folder: Path) -> Iterator[Path]:
    """The folder of the program, to be first on the path."""
    address, program = folder / "socket", folder / "bin/rla"
    program.parent.mkdir()
    program.write_text(CLIENT.format(python=sys.executable, address=str(address)))
    program.chmod(0o755)
    command = [sys.executable, "-m", "tests.integration.forking", str(address)]
    with subprocess.Popen(command, env=environment() | FORKABLE) as server:
        try:
            until(lambda: address.exists() or server.poll() is not None, seconds=300)
            assert server.poll() is None, "the server ended as it started"
            yield program.parent
        finally:
            server.kill()


def serve(address: Path) -> None:
    for name in PRELOADED:
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a call that has ended
    with socket.socket(socket.AF_UNIX) as listening:
        begun = address.with_name("begun")
        listening.bind(str(begun))
        listening.listen()
        begun.rename(address)  # from here on a call is answered
        while True:
            client, _ = listening.accept()
            if os.fork() == 0:
                answer(client)
            client.close()


def answer(client: socket.socket) -> None:
    """In the forked process: make one call, and leave at once."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(client, 4, 3)
    with client.makefile("rb") as stream:
        words, folder, variables = json.loads(stream.read(int.from_bytes(size, "big")))
    for number, own in enumerate(streams):
        os.dup2(own, number)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.path[:0] = [place for place in variables.get("PYTHONPATH", "").split(os.pathsep) if place not in sys.path]
    sys.argv = ["rla", *words]
    status = import_module("rla.cli.app").run(words)
    sys.stdout.flush()
    client.send(bytes([status]))
    os._exit(0)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
