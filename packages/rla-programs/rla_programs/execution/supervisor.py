"""The first process in the box of a command: forwards an address to a socket, and runs the command.

    python -I -S supervisor.py SOCKET PORT PROCESSES UID COMMAND...

A script of the standard library, because it is bound into the box as a file. The box ends with it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import sys
import threading

CHUNK = 1 << 16


def copy_bytes(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until one end closes, then close both for the other thread."""
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def accept_forever(listening: socket.socket, path: str) -> None:
    while True:
        client, _ = listening.accept()
        gateway = socket.socket(socket.AF_UNIX)
        try:
            gateway.connect(path)
        except OSError:  # this connection is lost, and not the next ones
            client.close()
            continue
        for ends in ((client, gateway), (gateway, client)):
            threading.Thread(target=copy_bytes, args=ends, daemon=True).start()


def main() -> None:
    path, port, processes, user, *command = sys.argv[1:]
    listening = socket.create_server(("127.0.0.1", int(port)), backlog=64)
    if int(user):
        os.setgroups([])
        os.setresgid(int(user), int(user), int(user))
        os.setresuid(int(user), int(user), int(user))
    os.chdir(os.environ["HOME"])  # its own folder, which root without capabilities may not enter
    child = os.fork()
    if child == 0:
        listening.close()
        resource.setrlimit(resource.RLIMIT_NPROC, (int(processes), int(processes)))
        os.execvp(command[0], command)
    threading.Thread(target=accept_forever, args=(listening, path), daemon=True).start()
    while (ended := os.wait())[0] != child:
        pass
    os._exit(os.waitstatus_to_exitcode(ended[1]) & 0xFF)


if __name__ == "__main__":
    main()
