"""The server of a machine: OSWorld's endpoints on a given socket or on loopback, protected by a token.

    python -m rla_screens.desktop.guest.server --listening 3 --token 4 --alone
    RLA_GUEST_TOKEN=... python -m rla_screens.desktop.guest.server --port 5000

Every request needs `Authorization: Bearer <token>`. Other programs of the user cannot read the token from this process,
but they might read it from the shell that starts it, so a session passes it through a pipe (`--token`). Two endpoints
are our own: `POST /rla/deeds` operates mouse and keyboard without a new interpreter, and `GET
/screenshot?still_ms=1500` waits until the screen stands still, and with `--alone` until no other process of the user is
busy.
"""

from __future__ import annotations

import argparse
import hmac
import json
import os
import socket
import socketserver
import threading
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rla_screens.desktop.guest.answers import GuestAnswer, GuestRequest, answer_to
from rla_screens.desktop.guest.hands import Hands
from rla_screens.desktop.guest.python_calls import undumpable

MOST_BODY = 256 << 20  # bytes of an upload
HEARD_S = 60.0  # seconds in which a client has to show the token, and then to send each part of a request
MOST_CLIENTS = 64


class Bounded(socketserver.ThreadingMixIn, socketserver.BaseServer):
    """A thread for each connection, and at most MOST_CLIENTS connections."""

    daemon_threads = True

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return threading.active_count() <= MOST_CLIENTS


class GuestServer(Bounded, HTTPServer):
    """On loopback."""

    hands: Hands
    token: str


class GivenSocketServer(Bounded, socketserver.UnixStreamServer):
    """On a listening socket, given by its descriptor."""

    hands: Hands
    token: str

    def __init__(self, listening: int) -> None:
        super().__init__("", Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = socket.socket(fileno=listening)


class Handler(BaseHTTPRequestHandler):
    """Serves one request after another on a connection."""

    protocol_version = "HTTP/1.1"
    server_version = "rla-guest"
    timeout = HEARD_S
    server: Any

    def do_GET(self) -> None:  # the library requires these names
        self._serve()

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: the client keeps a record of its requests."""

    def address_string(self) -> str:
        return "guest"

    def _serve(self) -> None:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            self.close_connection = True
            return self._send(GuestAnswer(401, {"status": "error", "message": "the token is missing or wrong"}))
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > MOST_BODY:
            self.close_connection = True
            return self._send(GuestAnswer(413, {"status": "error", "message": "the request is too large"}))
        body = self.rfile.read(int(length))
        self.connection.settimeout(None)  # an authorized client may pause between two requests
        address = urlsplit(self.path)
        asked = {key: values[-1] for key, values in parse_qs(address.query).items()}
        values, files = read_body(self.headers, body)
        request = GuestRequest(method=self.command, path=address.path, asked=asked, values=values, files=files)
        return self._send(answer_to(request, self.server.hands))

    def _send(self, answer: GuestAnswer) -> None:
        plain = isinstance(answer.content, bytes)
        data = answer.content if isinstance(answer.content, bytes) else json.dumps(answer.content).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind if plain else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def read_body(headers: Message, body: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The values and the files of a JSON body, a form, or a form with files; empty if the body cannot be parsed."""
    kind = headers.get_content_type()
    if kind == "multipart/form-data":
        whole = message_from_bytes(f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body)
        parts = whole.get_payload() if whole.is_multipart() else []
        values, files = dict[str, Any](), dict[str, bytes]()
        for part in parts if isinstance(parts, list) else []:
            if not isinstance(part, Message):
                continue
            name, data = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
            if isinstance(name, str) and isinstance(data, bytes):
                (files if part.get_filename() is not None else values)[name] = data
        return {name: data.decode(errors="replace") for name, data in values.items()}, files
    if kind == "application/x-www-form-urlencoded":
        return {key: found[-1] for key, found in parse_qs(body.decode(errors="replace")).items()}, {}
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        found = {}
    return (found if isinstance(found, dict) else {}), {}


def secret_token(pipe: int) -> str:
    """The token from a pipe, or from the environment. From now on other programs can read neither."""
    undumpable()
    if pipe >= 0:
        with open(pipe) as file:
            return file.read()
    token = os.environ.pop("RLA_GUEST_TOKEN", "")
    if not token:
        raise SystemExit("RLA_GUEST_TOKEN: set a token; anybody who knows it may run programs here")
    return token


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listening", type=int, default=-1, help="descriptor of a socket of the file system")
    parser.add_argument("--port", type=int, default=5000, help="on loopback")
    parser.add_argument("--display", default=os.environ.get("DISPLAY", ":0"))
    parser.add_argument("--alone", action="store_true", help="nothing else runs for this user; pictures wait for rest")
    parser.add_argument("--token", type=int, default=-1, help="descriptor of a pipe with the token")
    own = parser.parse_args()
    token = secret_token(own.token)
    server: GuestServer | GivenSocketServer
    server = GivenSocketServer(own.listening) if own.listening >= 0 else GuestServer(("127.0.0.1", own.port), Handler)
    server.hands, server.token = Hands(own.display, alone=own.alone), token
    server.serve_forever()


if __name__ == "__main__":
    main()
