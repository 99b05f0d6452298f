"""Files that tasks name by URL: `data:` texts, a folder of the user's, and the network only if it is allowed."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

import aiohttp

from rla_screens.desktop.params import DesktopParams

MOST = 512 << 20  # bytes of a file
FETCH_S = 300.0


class ResourceMissing(Exception):
    """A file that a task names is not available; the message says why."""


def reachable(address: str, own: DesktopParams) -> bool:
    """Whether a file is probably available, without downloading it."""
    return address.startswith("data:") or local_file(address, own) is not None or (own.download and is_web(address))


async def task_resource(address: str, own: DesktopParams) -> bytes:
    """Raises ResourceMissing."""
    if address.startswith("data:"):
        return data_of_url(address)
    if (place := local_file(address, own)) is not None:
        try:
            if place.stat().st_size > MOST:
                raise ResourceMissing(f"env.own.files: {place} has more than {MOST >> 20} MiB")
            return place.read_bytes()
        except OSError as error:
            raise ResourceMissing(f"env.own.files: {place} cannot be read ({error})") from None
    if not is_web(address):
        raise ResourceMissing(f"{address[:200]!r} is not the URL of a file")
    if not own.download:
        raise ResourceMissing(
            f"{address[:200]} is not in env.own.files, and env.own.download is false; put the file there, or allow it"
        )
    return await _fetched_resource(address, own)


def is_web(address: str) -> bool:
    return urlsplit(address).scheme in ("http", "https")


def local_file(address: str, own: DesktopParams) -> Path | None:
    """A file in `env.own.files`, by the last part of the URL, or by the digest under which a download was stored."""
    if not own.files:
        return None
    for name in (_kept_name(address), urlsplit(address).path.rpartition("/")[2]):
        place = Path(own.files, name)
        if name not in ("", ".", "..") and "\\" not in name and is_plain_file(place):
            return place
    return None


def is_plain_file(place: Path) -> bool:
    """Whether `place` is a file. Names that the file system does not allow are not files."""
    try:
        return place.is_file()
    except OSError:
        return False


def _kept_name(address: str) -> str:
    return hashlib.sha256(address.encode()).hexdigest()


def data_of_url(address: str) -> bytes:
    """RFC 2397. Raises ResourceMissing."""
    head, comma, body = address[len("data:") :].partition(",")
    try:
        data = unquote_to_bytes(body)
        if not comma:
            raise ValueError("no comma")
        return base64.b64decode(data, validate=True) if head.endswith(";base64") else data
    except (ValueError, binascii.Error) as error:
        raise ResourceMissing(f"a data address cannot be read ({error})") from None


async def _fetched_resource(address: str, own: DesktopParams) -> bytes:
    """Download a file, and store it in `env.own.files` if that is set."""
    try:
        limit = aiohttp.ClientTimeout(total=FETCH_S)
        async with aiohttp.ClientSession(timeout=limit, trust_env=True) as session, session.get(address) as answer:
            answer.raise_for_status()
            data = bytearray()
            while part := await answer.content.read(1 << 20):
                data += part
                if len(data) > MOST:
                    raise ResourceMissing(f"{address[:200]} has more than {MOST >> 20} MiB")
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise ResourceMissing(f"{address[:200]} could not be fetched ({type(error).__name__}: {error})") from None
    if own.files:
        keep(data, Path(own.files, _kept_name(address)))
    return bytes(data)


def keep(data: bytes | bytearray, place: Path) -> None:
    """Raises ResourceMissing."""
    part_file = place.with_suffix(f".{os.getpid()}-{id(data)}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        part_file.write_bytes(data)
        part_file.rename(place)
    except OSError as error:
        with contextlib.suppress(OSError):
            part_file.unlink(missing_ok=True)
        raise ResourceMissing(f"env.own.files: {place.parent} cannot keep a file ({error})") from None
