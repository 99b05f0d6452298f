"""The program of a shell's box (`shell.py`): writes files, runs a command, reads files. Only the standard library.

The controller of the box calls one of these functions for each run, and ends every process of the run afterwards. So a
command leaves nothing but files, and a value that a function returns cannot be changed by processes of a command.
"""

import base64
import os
import subprocess

LARGEST = 1 << 16  # bytes of a file that is read
# $1: a descriptor that gets the last folder, $2: the command.
SHELL = 'trap "pwd -P >&$1" EXIT; eval "set --; $2"'


def place(files: "list[tuple[str, int, str]]", folders: "list[str]", fresh: "list[str]") -> None:
    """Write files, each an absolute path with its mode and its contents in base64, and make folders. Whatever is at the
    paths `fresh` is moved away before.
    """
    for path in fresh:
        above = os.path.dirname(path)
        path = above if os.path.lexists(above) and (os.path.islink(above) or not os.path.isdir(above)) else path
        if os.path.lexists(path):
            if os.path.isdir(path) and not os.path.islink(path):
                os.chmod(path, 0o700)  # a folder is moved by those who may write to it
            os.mkdir(aside := f"/old-{os.urandom(8).hex()}", 0o700)
            os.rename(path, os.path.join(aside, "old"))
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
    for path, mode, data in files:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
        os.chmod(path, mode)


def command(text: str, folder: str, variables: "dict[str, str]", log: str) -> "tuple[int, str]":
    """The exit code of a bash command, and the folder that it ends in. `log`: a file for its output, or empty."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    here = folder if os.path.isdir(folder) else "/"
    shell = subprocess.Popen(
        ["/bin/bash", "-c", SHELL, "bash", str(writing), text],
        cwd=here,
        env={**variables, "PWD": here},
        stdin=subprocess.DEVNULL,
        stdout=open(log, "wb") if log else None,  # noqa: SIM115 (closed with this process)
        stderr=subprocess.STDOUT,
        pass_fds=(writing,),
    )
    code = shell.wait()
    try:
        last = os.read(reading, 4096).decode("utf-8", "replace").rstrip("\n")
    except BlockingIOError:
        last = ""
    return code, last if os.path.isabs(last) and os.path.isdir(last) else here


def texts(paths: "list[str]") -> "list[str]":
    """The contents of files, empty for one that is not there or is not a file."""
    found = []
    for path in paths:
        try:
            opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(opened, "rb") as file:
                found.append(file.read(LARGEST).decode("utf-8", "replace"))
        except OSError:
            found.append("")
    return found
