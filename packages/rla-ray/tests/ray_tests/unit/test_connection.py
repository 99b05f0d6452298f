"""What is asked before Ray is: whether anything listens where the cluster is said to be."""

from __future__ import annotations

import socket

import pytest
from rla_ray.connection import knock


def test_a_port_that_nobody_listens_on_is_an_error_at_once_and_other_addresses_are_ray_s_to_know() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        knock(address)
    with pytest.raises(OSError, match="refused"):
        knock(address)
    for name in ("auto", "local", "ray://", "host:"):
        knock(name)
