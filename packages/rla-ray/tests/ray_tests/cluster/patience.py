"""Nodes of a cluster on a machine that has much else to do.

Ray 2.60 gives a node 30 seconds to start, and a raylet dies whose agents have not told it each of their ports within 15
seconds, be it that the agents still import what they need.
"""

from __future__ import annotations

import inspect
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest.mock import patch

START = 300.0  # seconds in which a node has started
AGENTS = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")
SETTINGS = {
    "RAY_gcs_server_port_wait_time_s": str(int(START)),
    "RAY_agent_register_timeout_ms": str(int(1000 * START)),
}


def node_words(*, gpus: int = 0) -> dict[str, Any]:
    """Arguments of a node with one core. Nobody waits for agents whose ports are known; `patience` waits for it."""
    with ExitStack() as held:
        found = [held.enter_context(socket.socket()) for _ in AGENTS]
        for one in found:
            one.bind(("127.0.0.1", 0))
        ports = {name: one.getsockname()[1] for name, one in zip(AGENTS, found, strict=True)}
    return {"num_cpus": 1, "num_gpus": gpus, "wait": False, **ports}


@contextmanager
def patience() -> Iterator[None]:
    """Within it a node has START seconds to start."""
    from ray._private import services
    from ray._raylet import DASHBOARD_AGENT_LISTEN_PORT_NAME, persist_port

    asked, start = services.get_node, services.start_raylet

    def started(redis: str, gcs: str, node: str, *more: Any, **named: Any) -> Any:
        """The one port that a raylet is not given: what its agent would write where it serves no pages."""
        session = inspect.signature(start).bind(redis, gcs, node, *more, **named).arguments["session_dir"]
        persist_port(session, node, DASHBOARD_AGENT_LISTEN_PORT_NAME, -1)
        return start(redis, gcs, node, *more, **named)

    def waited_for(address: str, node: str, *more: Any) -> Any:
        end = time.monotonic() + START
        while time.monotonic() < end:
            with suppress(RuntimeError):
                return asked(address, node, *more)
            time.sleep(0.1)
        return asked(address, node, *more)

    with (
        patch.object(services, "get_node", waited_for),
        patch.object(services, "start_raylet", started),
        patch.dict(os.environ, SETTINGS),
    ):
        yield
