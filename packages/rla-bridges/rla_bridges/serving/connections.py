"""The connections of an HTTP server: a limited number, and each has to send the head of its first request in time.

`aiohttp` bounds neither. A server that has run out of file descriptors cannot open files or start environments, and
asyncio writes a traceback for every connection that it then fails to accept.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from asyncio import BaseTransport, TimerHandle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

log = logging.getLogger(__name__)
log_of_requests = logging.getLogger(f"{__name__}.requests")  # for aiohttp: defects of the server itself

HEAD_S = 10.0  # seconds to send the head of the first request
PAUSE_S = 1.0  # seconds before the next try if the system cannot accept another connection
BACKLOG = 128
DESCRIPTORS, LEAST = 1 << 16, 4  # at most of this process, and connections at least of a server
SPARE = 128  # connections besides those of sessions


def _own_defect(record: logging.LogRecord) -> bool:
    """Whether a log record is our own defect. Clients may send garbage or hang up as often as they like."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | ConnectionError))


log_of_requests.addFilter(_own_defect)


def most_connections(sessions: int) -> int:
    """The limit on connections, which leaves half of this process's file descriptors to environments."""
    return min(sessions + SPARE, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


def share_of_connections(wanted: int, servers: int) -> int:
    """The limit for each of several servers of this process, which gets the descriptors that the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, DESCRIPTORS)), hard))
    return max(LEAST, most_connections(wanted * servers) // servers)


def unix_socket(path: Path) -> socket.socket:
    """A listening socket, to which everybody may write who can see its folder. Raises OSError."""
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(path))
        path.chmod(0o666)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def sockets_of(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of `host`. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            sockets.append(socket.create_server((address[0], address[1]), family=family, backlog=BACKLOG))
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


class Connections:
    """For one event loop. At the limit `most`, a new connection replaces one that does not play: the oldest without a
    complete head first. If all of them play, the new one is closed.
    """

    def __init__(self, *, most: int, head_s: float = HEAD_S) -> None:
        self._most, self._head_s = most, head_s
        self._waiting: dict[BaseTransport, TimerHandle] = {}  # for their first head
        self._playing: set[BaseTransport | None] = set()

    def heard(self, transport: BaseTransport | None) -> None:
        """The head of a request has arrived."""
        if transport in self._waiting:
            self._waiting.pop(transport).cancel()

    @contextmanager
    def playing(self, transport: BaseTransport | None) -> Iterator[None]:
        """Inside, a session uses the connection, so it is not replaced."""
        self._playing.add(transport)
        try:
            yield
        finally:
            self._playing.discard(transport)

    async def accept(self, sockets: list[socket.socket], server: web.Server) -> None:
        """Hand connections to `server` until cancelled, then close the sockets."""
        try:
            await asyncio.gather(*(self._accept(each, server) for each in sockets))
        finally:
            for each in sockets:
                each.close()
            for timer in self._waiting.values():
                timer.cancel()

    async def _accept(self, listening: socket.socket, server: web.Server) -> None:
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            try:
                client, _ = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("no connection is taken for %g s: %s", PAUSE_S, error.strerror or error)
                await asyncio.sleep(PAUSE_S)
                continue
            if len(server.connections) >= self._most and not self._made_room(server):
                client.close()
                continue
            try:
                transport, _ = await loop.connect_accepted_socket(server, client)
            except OSError:  # it is gone already
                client.close()
                continue
            self._waiting[transport] = loop.call_later(self._head_s, self._drop, transport)

    def _made_room(self, server: web.Server) -> bool:
        """Connections are in the order in which they came."""
        others = [each.transport for each in server.connections if each.transport not in self._playing]
        open_ones = [each for each in others if each is not None and not each.is_closing()]
        if open_ones:
            self._drop(min(open_ones, key=lambda each: each not in self._waiting))
        return bool(open_ones)

    def _drop(self, transport: BaseTransport) -> None:
        self.heard(transport)
        if isinstance(transport, asyncio.Transport):
            transport.abort()
