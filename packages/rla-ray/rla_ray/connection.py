"""The connection to a Ray cluster, shared by engines, training and environments."""

from __future__ import annotations

import logging
import os
import platform
import socket
from typing import Any

from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.plugins import from_checkout
from rla.processes import gpu_and_model
from rla_ray.devices import UsedDevice

NAMESPACE = "rla"
KNOCK = 20.0  # seconds
# Ray's retries for a head that has just accepted a connection. Each may take a minute, and Ray's default is twenty: a
# stage would wait for all of them if the head died in between.
TRIES = ("RAY_NUM_REDIS_GET_RETRIES", "2")


def address_of(own: Any, generator: GeneratorConfig) -> str:
    """The cluster address for training or environments: `own.address`, or else the address of the engines."""
    return str(own.address or getattr(generator.own, "address", "auto"))


def connected(address: str, *, what: str = "generator.backend ray") -> Any:
    """Connect to the cluster at `address` and return the module `ray`. `what` names the parameter in error messages.

    Raises UserError if no cluster answers there, or if it refuses this user's token.
    """
    os.environ.setdefault(*TRIES)  # Ray reads this on import
    try:
        import ray
        from ray.exceptions import AuthenticationError
    except ImportError as error:
        raise UserError(f"{what}: {error}; {from_checkout('rla-ray')}") from error
    if ray.is_initialized():
        return ray
    try:
        knock(address)
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except AuthenticationError as error:
        raise UserError(
            f"{what}: the cluster at {address} refuses this user's token ({first_line(error)}); copy the "
            "token of the head's user to this machine, and set RAY_AUTH_MODE=token (docs/guide/engines.md)"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"{what}: no Ray cluster answers at {address} ({first_line(error)}); call `ray start --head` "
            "on one machine and `ray start --address=<head>` on the others"
        ) from error
    return ray


def devices_of_ray_worker() -> tuple[UsedDevice, ...]:
    """The GPUs that Ray assigned to this worker process, or the CPU of its node if it has none."""
    import ray

    host = platform.node()
    found = [
        UsedDevice(host=host, gpu=gpu, model=model)
        for place, number in enumerate(ray.get_gpu_ids())
        for gpu, model in [gpu_and_model(str(number), place)]
    ]
    return tuple(found) or (UsedDevice(host=host),)


def knock(address: str) -> None:
    """Raises OSError if nothing listens at `host:port`. Ray itself would retry for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=KNOCK).close()


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its type if the message is empty."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
