"""Programs that run on a machine for clients of its server, and windows, through wmctrl."""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rla_screens.desktop.guest.python_calls import by_itself, program_space

LONGEST_S = 75.0  # seconds; less than a client waits by default (`step_s`), so the answer can say that it took too long
MOST_OUTPUT = 1 << 20  # bytes of a program's output that are kept
MOST_FILE = 64 << 20  # bytes
MOST_ENTRIES, DEEPEST = 10_000, 64  # of a folder and its subfolders
CHUNK = 1 << 16
OPENERS = {
    **dict.fromkeys((".txt", ".md", ".cfg", ".ini", ".conf", ".log", ".json", ".py", ".html"), ("mousepad",)),
    **dict.fromkeys((".ods", ".fods", ".xlsx", ".xls"), ("soffice", "--norestore", "--nologo", "--calc")),
    **dict.fromkeys((".odt", ".docx", ".doc"), ("soffice", "--norestore", "--nologo", "--writer")),
    ".csv": ("soffice", "--norestore", "--nologo", "--calc", "--infilter=CSV:44,34,76,1"),
}
LOOK_S = 0.1


def expanded(path: str) -> str:
    return os.path.expandvars(os.path.expanduser(path))


def words_of_command(command: Any, shell: bool) -> list[str]:
    """The arguments of a command as the protocol gives it, a string or a list. Raises ValueError."""
    if shell:
        return ["/bin/sh", "-c", command if isinstance(command, str) else " ".join(map(str, command))]
    words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    if not words:
        raise ValueError("no command")
    return [expanded(word) if word.startswith("~/") else word for word in words]


def run_program(arguments: Sequence[str], *, longest_s: float = LONGEST_S) -> tuple[int, str, str]:
    """Exit code and the beginnings of stdout and stderr. Does not wait for processes that the program leaves behind.
    Raises OSError, and TimeoutError after killing its process group.

    Its streams are sockets, because other programs could open pipes and files through /proc and write into them.
    """
    out, err = socket.socketpair(), socket.socketpair()
    with out[0], err[0]:
        with out[1], err[1]:
            process = subprocess.Popen(
                by_itself(arguments),
                stdin=subprocess.DEVNULL,
                stdout=out[1].fileno(),
                stderr=err[1].fileno(),
                start_new_session=True,
                env=program_space(arguments),
            )
        try:
            said = heard((out[0], err[0]), process, time.monotonic() + longest_s)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            raise TimeoutError(f"{arguments[0]} took longer than {longest_s:g} s") from None
        finally:
            code = process.wait()
        output, error = (text.decode(errors="replace") for text in said)
        return code, output, error


def heard(streams: Sequence[socket.socket], process: subprocess.Popen[bytes], until: float) -> list[bytearray]:
    """The beginning of each stream until the process has ended, even if other processes still hold the other ends.
    Raises TimeoutError.
    """
    kept, ended = [bytearray() for _ in streams], os.pidfd_open(process.pid)
    with selectors.DefaultSelector() as selector:
        for stream, text in zip(streams, kept, strict=True):
            stream.setblocking(False)
            selector.register(stream, selectors.EVENT_READ, text)
        selector.register(ended, selectors.EVENT_READ)
        try:
            over = False
            while not over:
                ready = selector.select(until - time.monotonic())
                over = any(key.fd == ended for key, _ in ready)
                if not over and time.monotonic() >= until:
                    raise TimeoutError
                for stream, text in zip(streams, kept, strict=True):
                    if stream in selector.get_map() and not _read_ready(stream, text):
                        selector.unregister(stream)
        finally:
            os.close(ended)
    return kept


def _read_ready(stream: socket.socket, text: bytearray) -> bool:
    """Read the available data, though not forever, and keep the beginning of the whole; False at the end."""
    with contextlib.suppress(BlockingIOError):
        for _ in range(MOST_OUTPUT // CHUNK):  # more than a socket holds
            part = stream.recv(CHUNK)
            if not part:
                return False
            text += part[: MOST_OUTPUT - len(text)]
    return True


def found_file(path: str) -> bytes:
    """The bytes of a regular file. Raises FileNotFoundError for anything else: reading a device or a pipe would never
    end, and a file of more than MOST_FILE bytes would fill the client's memory.
    """
    try:
        opened = os.open(expanded(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(opened, "rb", buffering=0) as file:
            found = os.fstat(opened)
            if not stat.S_ISREG(found.st_mode):
                raise FileNotFoundError("not a regular file")
            data = bytearray()
            while found.st_size <= MOST_FILE and len(data) <= MOST_FILE and (part := file.read(1 << 20)):
                data += part
            if max(found.st_size, len(data)) > MOST_FILE:
                raise FileNotFoundError(f"more than {MOST_FILE >> 20} MiB")
            return bytes(data)
    except OSError as error:
        raise FileNotFoundError(f"{path}: {error.strerror or error}") from None


def write_file(path: str, data: bytes) -> None:
    """Replaces an existing pipe or device, because writing into it might block forever. Raises OSError."""
    place = Path(expanded(path))
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists() and not place.is_file() and not place.is_dir():
        place.unlink()
    place.write_bytes(data)


def begin_program(arguments: Sequence[str]) -> None:
    """Raises OSError."""
    nothing = subprocess.DEVNULL
    subprocess.Popen(arguments, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


def run_python(code: str) -> dict[str, Any]:
    returned, output, error = run_program([sys.executable, "-c", code])
    return {
        "status": "success" if returned == 0 else "error",
        "message": output + error,
        "need_more": False,
        "output": output,
        "error": error,
        "return_code": returned,
    }


def opened_file(path: str, longest_s: float) -> bool:
    """Open a file or a folder and wait for its window. Raises FileNotFoundError if no program opens it."""
    place = Path(expanded(path))
    if place.is_dir():
        arguments = ["pcmanfm", str(place)]
    elif place.exists() and place.suffix.lower() in OPENERS:
        arguments = [*OPENERS[place.suffix.lower()], str(place)]
    elif place.exists():
        arguments = ["mousepad", str(place)]
    else:
        arguments = [path]
    try:
        begin_program(arguments)
    except OSError as error:
        raise FileNotFoundError(f"{path}: {error}") from None
    return window_shown(place.stem or place.name, longest_s)


def window_shown(title: str, longest_s: float) -> bool:
    """Wait for a window with `title` in its title, and activate it."""
    until = time.monotonic() + longest_s
    while time.monotonic() < until:
        found = next((number for number, text in windows() if title.lower() in text.lower()), None)
        if found is not None:
            return wmctrl("-i", "-a", found)
        time.sleep(LOOK_S)
    return False


def windows() -> list[tuple[str, str]]:
    """Ids and titles."""
    _, output, _ = run_program(["wmctrl", "-l"])
    lines = (line.split(None, 3) for line in output.splitlines())
    return [(words[0], words[3] if len(words) > 3 else "") for words in lines if words]


def wmctrl(*arguments: str) -> bool:
    return run_program(["wmctrl", *arguments])[0] == 0


def to_window(deed: str, name: str, *, strict: bool, by_class: bool) -> bool:
    """`deed`: -a to activate, -c to close."""
    return wmctrl(*(["-F"] if strict else []), *(["-x"] if by_class else []), deed, name)


def tree_of(folder: Path, *, left: list[int] | None = None, depth: int = 0) -> dict[str, Any]:
    """A folder and its contents, as OSWorld's server lists them, cut off at very many or very deep entries."""
    left = [MOST_ENTRIES] if left is None else left
    inner: list[dict[str, Any]] = []
    try:
        with os.scandir(folder) as entries:
            listed = sorted(
                (entry for entry, _ in zip(entries, range(left[0]), strict=False)), key=lambda one: one.name
            )
    except OSError as error:
        return {"error": str(error)}
    left[0] -= len(listed)
    for entry in listed:
        if entry.is_dir(follow_symlinks=False) and depth < DEEPEST:
            inner.append(tree_of(Path(entry.path), left=left, depth=depth + 1))
        else:
            inner.append({"type": "file", "name": entry.name})
    return {"type": "directory", "name": folder.name, "children": inner}
