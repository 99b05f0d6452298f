"""OSWorld's own server, from a checkout, on a given listening socket and protected by a token.

    python -m rla_screens.desktop.guest.theirs CHECKOUT --listening 3 --token 4

It needs OSWorld's dependencies: flask, pyautogui, python-xlib, lxml, numpy, pillow, requests, pyatspi. The server keeps
one file for all screenshots, so requests are answered one after another.
"""

from __future__ import annotations

import argparse
import hmac
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from socket import socket
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from rla_screens.desktop.guest.server import secret_token

SERVER = "desktop_env/server"
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class GivenSocketWsgi(WSGIServer):
    """A WSGI server on a listening Unix socket."""

    def __init__(self, listening: int) -> None:
        super().__init__(("127.0.0.1", 0), QuietHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = socket(fileno=listening)
        self.server_name, self.server_port = "guest", 0
        self.setup_environ()

    def get_request(self) -> tuple[socket, tuple[str, int]]:
        """Unix sockets have no client address, but wsgiref reads one."""
        return self.socket.accept()[0], ("guest", 0)


class QuietHandler(WSGIRequestHandler):
    def address_string(self) -> str:
        return "guest"

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing."""


def guarded(application: Application, token: str) -> Application:
    """The application, for clients that send the token."""

    def answer(space: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        given = str(space.get("HTTP_AUTHORIZATION", "")).removeprefix("Bearer ").strip()
        if hmac.compare_digest(given.encode(), token.encode()):
            return application(space, start)
        start("401 Unauthorized", [("Content-Type", "text/plain")])
        return [b"the token is missing or wrong"]

    return answer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--listening", type=int, required=True)
    parser.add_argument("--token", type=int, required=True)
    own = parser.parse_args()
    token = secret_token(own.token)
    folder = _writable_copy(own.checkout / SERVER)
    sys.path.insert(0, str(folder))
    from main import app  # type: ignore[import-not-found]

    server = GivenSocketWsgi(own.listening)
    server.set_app(guarded(app, token))
    server.serve_forever()


def _writable_copy(folder: Path) -> Path:
    """A copy of the server, because it writes screenshots next to its own file."""
    place = Path(tempfile.mkdtemp(prefix="server"))
    for path in folder.glob("*.py"):
        (place / path.name).write_bytes(path.read_bytes())
    return place


if __name__ == "__main__":
    main()
