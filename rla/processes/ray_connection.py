"""A connection to a Ray cluster, for whatever stands on it: engines and environments."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from rla.errors import UserError

NAMESPACE = "rla"
KNOCK = 20.0  # seconds
# How often Ray tries to reach a head that has just answered a knock. A try may take a minute, and Ray makes twenty: a
# stage would wait for all of them where the head dies behind the knock.
TRIES = ("RAY_NUM_REDIS_GET_RETRIES", "2")


def connected(address: str, *, what: str = "generator.backend ray") -> Any:
    """The module `ray`, connected to the cluster. `what` asks for it, as error messages name it.

    Raises UserError where there is no cluster, or none that lets us in.
    """
    os.environ.setdefault(*TRIES)  # Ray reads it when it is imported
    try:
        import ray
        from ray.exceptions import AuthenticationError
    except ImportError as error:
        raise UserError(f"{what}: {error}; install the extra rla[ray]") from error
    if ray.is_initialized():
        return ray
    try:
        knock(address)
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except AuthenticationError as error:
        raise UserError(
            f"generator.ray.address {address}: the cluster refuses this user's token ({first_line(error)}); copy the "
            "token of the head's user to this machine, and set RAY_AUTH_MODE=token (docs/guide/engines.md)"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"generator.ray.address {address}: no Ray cluster answers ({first_line(error)}); call `ray start --head` "
            "on one machine and `ray start --address=<head>` on the others"
        ) from error
    return ray


def knock(address: str) -> None:
    """Raises OSError where nothing listens at `host:port`: Ray itself tries for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=KNOCK).close()


def first_line(error: BaseException) -> str:
    """What an error says in its first line, or its kind."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
