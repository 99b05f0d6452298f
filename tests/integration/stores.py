"""A real S3 server on the loopback device, and what lies on it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.request import Request, urlopen

import pytest

BUCKET = "bucket"
URL = f"s3://{BUCKET}/runs/t"


@contextmanager
def s3_server(patch: pytest.MonkeyPatch) -> Iterator[Any]:
    """moto's server with an empty bucket, and the usual variables by which clients find it."""
    server = start_server(("127.0.0.1", 0))
    try:
        host, port = server.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_MAX_ATTEMPTS", "1")
        patch.setattr("botocore.session.create_loader", loader)
        empty_stores()  # of what another test has left
        yield server
    finally:
        server.stop()


def start_server(address: tuple[str, int]) -> Any:
    """One that is started again has what it had."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address=address[0], port=address[1], verbose=False)
    server.start()
    return server


@cache
def loader(places: str | None) -> Any:
    """The reader of botocore's descriptions of services, shared by all clients: each would read them in 0.25 s."""
    from botocore.loaders import create_loader

    return create_loader(places)


def empty_stores() -> None:
    """Only an empty bucket is left on all servers of this process."""
    urlopen(Request(f"{os.environ['AWS_ENDPOINT_URL']}/moto-api/reset", method="POST")).close()
    client().mkdir(BUCKET)


def client() -> Any:
    """One for each server."""
    return client_of(os.environ["AWS_ENDPOINT_URL"])


@cache
def client_of(_: str) -> Any:
    import s3fs

    return s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)


def stored_files(url: str = URL) -> dict[str, str]:
    """Key -> ETag of all that lies below a run's folder."""
    root = url.removeprefix("s3://")
    found = client().find(root, detail=True)
    return {name.removeprefix(f"{root}/"): info["ETag"] for name, info in found.items()}
