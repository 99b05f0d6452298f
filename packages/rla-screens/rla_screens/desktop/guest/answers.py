"""The answers of the server's endpoints, with the names and fields of OSWorld's own server."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla_screens.desktop.guest.hands import Hands
from rla_screens.desktop.guest.programs import (
    LONGEST_S,
    begin_program,
    expanded,
    found_file,
    opened_file,
    run_program,
    run_python,
    to_window,
    tree_of,
    window_shown,
    words_of_command,
    write_file,
)
from rla_screens.desktop.guest.spoken import deeds_of_program

WINDOW_S = 60.0
MOST_STILL = 10_000  # ms
TREE = Path(__file__).with_name("tree.py")
SYSTEM_PYTHON = "/usr/bin/python3"  # Debian's packages belong to this Python


@dataclass(frozen=True, kw_only=True)
class GuestRequest:
    """`asked`: the query of the URL. `values`: the fields of the body. `files`: uploads by their field's name."""

    method: str
    path: str
    asked: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class GuestAnswer:
    """JSON data, or bytes of a `kind`."""

    status: int
    content: Any
    kind: str = "application/octet-stream"


def answer_to(request: GuestRequest, hands: Hands) -> GuestAnswer:
    """Never raises an exception that a request may cause."""
    found = ENDPOINTS.get((request.method, request.path.removeprefix("/setup")))
    if found is None:
        return failed(404, f"{request.method} {request.path} is not served here")
    try:
        return found(request, hands)
    except FileNotFoundError as error:
        return failed(404, str(error))
    except (LookupError, TypeError, ValueError) as error:
        return failed(400, f"{type(error).__name__}: {error}")
    except TimeoutError as error:
        return failed(504, str(error))
    except OSError as error:
        return failed(500, f"{type(error).__name__}: {error}")


def failed(status: int, message: str) -> GuestAnswer:
    return GuestAnswer(status, {"status": "error", "message": message})


def screenshot(request: GuestRequest, hands: Hands) -> GuestAnswer:
    still = min(MOST_STILL, max(0.0, float(request.asked.get("still_ms", "0"))))
    return GuestAnswer(200, hands.png(still_ms=still), "image/png")


def execute(request: GuestRequest, hands: Hands) -> GuestAnswer:
    """Run a program. `python -c` with plain calls of pyautogui is carried out directly."""
    arguments = words_of_command(request.values.get("command"), bool(request.values.get("shell", False)))
    deeds = spoken(arguments)
    if deeds is not None:
        for deed in deeds:
            hands.do(deed)
        return GuestAnswer(200, {"status": "success", "output": "", "error": "", "returncode": 0})
    code, output, error = run_program(arguments)
    return GuestAnswer(200, {"status": "success", "output": output, "error": error, "returncode": code})


def spoken(arguments: list[str]) -> list[dict[str, Any]] | None:
    plain = len(arguments) == 3 and os.path.basename(arguments[0]) in ("python", "python3") and arguments[1] == "-c"
    return deeds_of_program(arguments[2]) if plain and "pyautogui" in arguments[2] else None


def deeds(request: GuestRequest, hands: Hands) -> GuestAnswer:
    for deed in request.values["deeds"]:
        hands.do(deed)
    return GuestAnswer(200, {"status": "success"})


def _launched_program(request: GuestRequest, hands: Hands) -> GuestAnswer:
    begin_program(words_of_command(request.values.get("command"), bool(request.values.get("shell", False))))
    return GuestAnswer(200, {"status": "success"})


def python(request: GuestRequest, hands: Hands) -> GuestAnswer:
    return GuestAnswer(200, run_python(str(request.values["code"])))


def file(request: GuestRequest, hands: Hands) -> GuestAnswer:
    return GuestAnswer(200, found_file(str(request.values["file_path"])))


def upload(request: GuestRequest, hands: Hands) -> GuestAnswer:
    write_file(str(request.values["file_path"]), request.files["file_data"])
    return GuestAnswer(200, {"status": "success", "size": len(request.files["file_data"])})


def open_file(request: GuestRequest, hands: Hands) -> GuestAnswer:
    path, name = str(request.values["path"]), request.values.get("window_name")
    longest = min(LONGEST_S, float(request.values.get("timeout_seconds", WINDOW_S)))
    found = opened_file(path, longest) and (name is None or window_shown(str(name), longest))
    return GuestAnswer(200, {"status": "success"}) if found else failed(500, f"no window for {path}")


def _on_window(deed: str) -> Callable[[GuestRequest, Hands], GuestAnswer]:
    def done(request: GuestRequest, hands: Hands) -> GuestAnswer:
        name, own = str(request.values["window_name"]), request.values
        found = to_window(deed, name, strict=bool(own.get("strict")), by_class=bool(own.get("by_class")))
        return GuestAnswer(200, {"status": "success"}) if found else failed(404, f"no window {name!r}")

    return done


def screen_size(request: GuestRequest, hands: Hands) -> GuestAnswer:
    width, height = hands.size
    return GuestAnswer(200, {"width": width, "height": height})


def _listed_folder(request: GuestRequest, hands: Hands) -> GuestAnswer:
    place = Path(expanded(str(request.values["path"])))
    if not place.is_dir():
        raise ValueError(f"{place} is no folder")
    return GuestAnswer(200, {"directory_tree": tree_of(place)})


def accessibility(request: GuestRequest, hands: Hands) -> GuestAnswer:
    """The tree of widgets as XML, if pyatspi is installed."""
    code, output, error = run_program([SYSTEM_PYTHON, "-I", str(TREE)], longest_s=30.0)
    return (
        GuestAnswer(200, {"AT": output}) if code == 0 else failed(501, error.strip().splitlines()[-1] if error else "")
    )


def terminal(request: GuestRequest, hands: Hands) -> GuestAnswer:
    """Empty: this desktop has no terminal."""
    return GuestAnswer(200, {"output": None, "status": "success"})


def desktop_path(request: GuestRequest, hands: Hands) -> GuestAnswer:
    return GuestAnswer(200, {"desktop_path": expanded("~/Desktop")})


ENDPOINTS: Mapping[tuple[str, str], Callable[[GuestRequest, Hands], GuestAnswer]] = {
    ("GET", "/screenshot"): screenshot,
    ("GET", "/terminal"): terminal,
    ("GET", "/accessibility"): accessibility,
    ("GET", "/platform"): lambda request, hands: GuestAnswer(200, b"Linux", "text/plain"),
    ("GET", "/cursor_position"): lambda request, hands: GuestAnswer(200, list(hands.place())),
    ("GET", "/rla/version"): lambda request, hands: GuestAnswer(200, {"guest": "rla", "python": sys.version}),
    ("POST", "/rla/deeds"): deeds,
    ("POST", "/execute"): execute,
    ("POST", "/launch"): _launched_program,
    ("POST", "/run_python"): python,
    ("POST", "/file"): file,
    ("POST", "/upload"): upload,
    ("POST", "/open_file"): open_file,
    ("POST", "/activate_window"): _on_window("-a"),
    ("POST", "/close_window"): _on_window("-c"),
    ("POST", "/screen_size"): screen_size,
    ("POST", "/list_directory"): _listed_folder,
    ("POST", "/desktop_path"): desktop_path,
}
