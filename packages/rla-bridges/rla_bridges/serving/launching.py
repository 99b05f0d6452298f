"""From the options of `rla env serve` to a server that runs until it is stopped."""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rla.config import Config
from rla.envs.pool import environments
from rla.errors import UserError
from rla.store.reading import read_tasks
from rla_bridges.adapters.openenv_client import TOKEN
from rla_bridges.serving.env_session import ServedEnv
from rla_bridges.serving.openenv_server import OpenEnvServer, ServerLimits, serve_openenv
from rla_bridges.serving.served_tasks import ServedTasks, served_tasks

SHORTEST_TOKEN = 16  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """The options of `rla env serve`. `idle` is in minutes."""

    host: str = "127.0.0.1"
    port: int = 8000
    split: str | None = None
    pool: Path | None = None
    sessions: int = 64
    idle: float = 60.0


def serve_env(config: Config, options: ServingOptions, *, tell: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM. `tell` prints lines for the user. Raises UserError."""
    if options.sessions < 1 or options.idle <= 0:
        raise UserError("--sessions and --idle must be above 0")
    token = token_for(options.host)
    tasks = served_tasks(config, split=options.split, pool=options.pool, note=tell)
    # One worker of the pool per session: otherwise a session would wait for the end of another.
    config = replace(
        config,
        pool=replace(config.pool, workers=options.sessions),
        rollout=replace(config.rollout, concurrency=options.sessions),
    )
    limits = ServerLimits(sessions=options.sessions, idle=60 * options.idle, token=token)

    def ready(address: str) -> None:
        tell(f"serving {tasks_counted(tasks)} of {config.env.name} at {address}; Ctrl-C stops it")
        if not is_loopback(options.host):
            tell(f"warning: {address} can be reached by other machines, and nothing that is sent is encrypted")

    async def run() -> None:
        try:
            server = OpenEnvServer(ServedEnv(config=config, tasks=tasks, make=hosted.make), limits)
            await serve_openenv(server, host=options.host, port=options.port, ready=ready)
        finally:
            await hosted.close()

    with environments(config, note=tell) as hosted:
        asyncio.run(run())
    tell("stopped")


def environment_of_pool(pool: Path) -> str:
    """The environment that a pool's tasks belong to. Raises UserError if there is no pool."""
    return read_tasks(pool)[0].env


def tasks_counted(tasks: ServedTasks) -> str:
    """`12 tasks (train 8, test 4)`."""
    parts = ", ".join(f"{name} {len(group)}" for name, group in tasks.splits.items())
    return f"{len(tasks.by_id)} tasks ({parts})"


def token_for(host: str) -> str | None:
    """The token that clients must send. Raises UserError if other machines could play without one."""
    token = os.environ.get(TOKEN) or None
    if token is None and not is_loopback(host):
        raise UserError(
            f"--host {host}: other machines could play; put a secret of {SHORTEST_TOKEN} characters or more into the "
            f"environment variable {TOKEN}, here and for the clients"
        )
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise UserError(f"{TOKEN} has {len(token)} characters; it needs {SHORTEST_TOKEN} or more")
    return token


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
