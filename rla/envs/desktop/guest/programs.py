"""Programs that run on a machine for whoever asks its server, and windows, by wmctrl."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LONGEST_S = 120.0
MOST_OUTPUT = 1 << 20  # bytes
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
    """The arguments of a command as the protocol gives it, a text or a list. Raises ValueError."""
    if shell:
        return ["/bin/sh", "-c", command if isinstance(command, str) else " ".join(map(str, command))]
    words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    if not words:
        raise ValueError("no command")
    return [expanded(word) if word.startswith("~/") else word for word in words]


def run_program(arguments: Sequence[str], *, longest_s: float = LONGEST_S) -> tuple[int, str, str]:
    """Exit code and what it wrote, in files: a program that it leaves behind holds no pipe open. Raises OSError, and
    TimeoutError once its group of processes is ended.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        try:
            code = process.wait(longest_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise TimeoutError(f"{arguments[0]} took longer than {longest_s:g} s") from None
        return code, beginning(out), beginning(err)


def beginning(file: Any) -> str:
    file.seek(0)
    return str(file.read(MOST_OUTPUT).decode(errors="replace"))


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
    """Open a file or a folder and wait for its window. Raises FileNotFoundError where nothing opens it."""
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
    """Wait for a window with `title` in its own, and activate it."""
    until = time.monotonic() + longest_s
    while time.monotonic() < until:
        found = next((number for number, text in windows() if title.lower() in text.lower()), None)
        if found is not None:
            return wmctrl("-i", "-a", found)
        time.sleep(LOOK_S)
    return False


def windows() -> list[tuple[str, str]]:
    """Numbers and titles."""
    done = subprocess.run(["wmctrl", "-l"], capture_output=True, text=True, errors="replace", check=False)
    lines = (line.split(None, 3) for line in done.stdout.splitlines())
    return [(words[0], words[3] if len(words) > 3 else "") for words in lines if words]


def wmctrl(*arguments: str) -> bool:
    return subprocess.run(["wmctrl", *arguments], capture_output=True, check=False).returncode == 0


def to_window(deed: str, name: str, *, strict: bool, by_class: bool) -> bool:
    """`deed`: -a to activate, -c to close."""
    return wmctrl(*(["-F"] if strict else []), *(["-x"] if by_class else []), deed, name)


def tree_of(folder: Path) -> dict[str, Any]:
    """A folder and all below, as OSWorld's server lists it."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        return {"error": str(error)}
    inner = [
        tree_of(entry) if entry.is_dir() and not entry.is_symlink() else {"type": "file", "name": entry.name}
        for entry in entries
    ]
    return {"type": "directory", "name": folder.name, "children": inner}
