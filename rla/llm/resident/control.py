"""Start, stop and ask after the resident engine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.llm.resident.client import ask_engine
from rla.llm.resident.messages import PING, STOP, code
from rla.processes.sockets import answers, begun, end_server, listening

LOG = "serve.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """What is served over TCP beside the socket: the model of a checkpoint or plain folder."""

    port: int
    model: Path
    config: GeneratorConfig
    seed: int

    def argument(self) -> str:
        """For the server's command line. Raises UserError where there is no such folder."""
        folder = self.model / "model" if (self.model / "model").is_dir() else self.model
        if not (folder / "config.json").is_file():
            raise UserError(f"{self.model}: no model folder; give --model a checkpoint or a Hugging Face folder")
        data = {"port": self.port, "model": str(folder.resolve()), "config": asdict(self.config), "seed": self.seed}
        return json.dumps(data)


def start_engine(path: Path, *, parent: int = 0, idle_minutes: float = 30.0, web: Web | None = None) -> str:
    """Start a server on the socket `path`; returns at once, stages wait until its imports are done.

    Raises UserError where the socket's folder may be entered by other users, or where there is nothing to serve.
    """
    more = [] if web is None else [web.argument()]
    path = path.absolute()
    listener = listening(path)
    if listener is None:
        return f"{path}: a server runs already"
    arguments = [str(listener.fileno()), str(path), str(parent), str(idle_minutes * 60), code(), *more]
    server = begun("rla.llm.resident.server", arguments, listener, log=path.parent / LOG)
    return f"{path}: engine server {server} started"


def engine_status(path: Path) -> str:
    """Whether the server at `path` would take this process's requests."""
    if not answers(path):
        return f"{path}: no server"
    connection = ask_engine(path, PING)
    if connection is None:
        return f"{path}: a server of other code; stages start engines of their own"
    connection.close()
    return f"{path}: ready"


def stop_engine(path: Path) -> str:
    """End the server and its engines; also one of other code."""
    return end_server(path, lambda: ask_engine(path, STOP))
