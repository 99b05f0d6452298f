"""A client of the guest protocol: the endpoints of OSWorld's server, ours or theirs.

Every method raises MachineLost if the guest does not answer in time or answers nonsense, and GuestRefusal if the guest
reports that it cannot do what was requested.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from rla_screens.desktop.guest.programs import MOST_FILE
from rla_screens.desktop.machines import GuestAddress, MachineLost
from rla_screens.desktop.pyautogui_source import program_of_deeds

MOST_ANSWER = 16 << 20  # bytes of JSON, which takes many times as much as objects
MOST_PICTURE, MOST_PIXELS = 64 << 20, 1 << 25  # bytes of a PNG file, and its pixels
LOOK_S = 0.3  # seconds between screenshots of a guest that cannot wait for a still screen itself
MOST_SAID = 300  # characters of a guest's message with a refusal
PNG = b"\x89PNG\r\n\x1a\n"


class GuestRefusal(Exception):
    """The guest refuses; `status` is the HTTP status, 200 for a program that fails there."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class TooLong(MachineLost):
    """An answer longer than the limit."""


class GuestClient:
    """For one event loop. `ours`: whether the server has our additions to the protocol; known after `greet`."""

    def __init__(self, address: GuestAddress, *, longest_s: float) -> None:
        self._address, self._longest = address, longest_s
        self._session: aiohttp.ClientSession | None = None
        self._first_size: tuple[int, int] | None = None
        self.ours = False

    async def greet(self) -> None:
        """Find out which server answers."""
        try:
            self.ours = (await self._json("GET", "/rla/version")).get("guest") == "rla"
        except GuestRefusal as refusal:
            if refusal.status == 401:
                raise
            self.ours = False
            await self.screenshot()

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def drop(self) -> None:
        """Like `close`, but at once."""
        session, self._session = self._session, None
        if session is not None and session.connector is not None:
            session.connector.close()
            session.detach()

    async def screenshot(self, *, still_ms: int = 0) -> bytes:
        """A PNG file. With `still_ms` it is taken when the screen stands still, or after that time in ms."""
        if self.ours or not still_ms:
            return await self._picture(f"/screenshot?still_ms={still_ms}" if self.ours else "/screenshot")
        until, found = time.monotonic() + still_ms / 1000, await self._picture("/screenshot")
        while time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
            before, found = found, await self._picture("/screenshot")
            if before == found:
                break
        return found

    async def _picture(self, path: str) -> bytes:
        data = await self._asked("GET", path, most=MOST_PICTURE)
        if not data.startswith(PNG) or len(data) < 24:
            raise MachineLost("gave a screenshot that is no PNG file")
        width, height = struct.unpack(">II", data[16:24])
        if width * height > MOST_PIXELS:
            raise MachineLost(f"gave a screenshot of {width} x {height} pixels")
        return data

    async def do(self, deeds: Sequence[Mapping[str, Any]]) -> None:
        """Deeds of mouse and keyboard, in pixels (`guest/hands.py`). Other servers get a program of pyautogui instead.
        If it fails, that is a refusal, because the screen would not show it.
        """
        if self.ours:
            await self._json("POST", "/rla/deeds", {"deeds": list(deeds)})
        else:
            done = await self.execute(["python", "-c", program_of_deeds(deeds)])
            if (code := done.get("returncode", 0)) != 0:
                said = str(done.get("error") or done.get("output") or "")[-MOST_SAID:]
                raise GuestRefusal(200, f"mouse and keyboard are not moved: pyautogui ends with {code}: {said}")

    async def execute(self, command: str | Sequence[str], *, shell: bool = False) -> dict[str, Any]:
        """`output`, `error` and `returncode` of a program."""
        return await self._json("POST", "/setup/execute", {"command": command, "shell": shell})

    async def launch(self, command: str | Sequence[str], *, shell: bool = False) -> None:
        await self._asked("POST", "/setup/launch", {"command": command, "shell": shell})

    async def open_file(self, path: str) -> None:
        await self._asked("POST", "/setup/open_file", {"path": path})

    async def to_window(self, deed: str, name: str, *, strict: bool = False, by_class: bool = False) -> None:
        """`deed`: activate or close."""
        body = {"window_name": name, "strict": strict, "by_class": by_class}
        await self._asked("POST", f"/setup/{deed}_window", body)

    async def upload(self, path: str, data: bytes) -> None:
        form = aiohttp.FormData()
        form.add_field("file_path", path)
        form.add_field("file_data", data, filename="file", content_type="application/octet-stream")
        await self._asked("POST", "/setup/upload", form)

    async def file(self, path: str) -> bytes | None:
        """The bytes of a file; None if there is none that can be read. A device, or a file of more than MOST_FILE
        bytes, counts as none, because an agent must not escape a loss by leaving one.
        """
        try:
            return await self._asked("POST", "/file", aiohttp.FormData({"file_path": path}), most=MOST_FILE)
        except TooLong:
            return None
        except GuestRefusal as refusal:
            if refusal.status != 404:
                raise
            return None

    async def screen_size(self) -> tuple[int, int]:
        found = await self._json("POST", "/screen_size", {})
        try:
            return int(found["width"]), int(found["height"])
        except (LookupError, TypeError, ValueError):
            raise MachineLost("did not say how large its screen is") from None

    async def first_size(self) -> tuple[int, int]:
        """`screen_size` at the first call: a task that changes the size still uses one size for all of its steps."""
        if self._first_size is None:
            self._first_size = await self.screen_size()
        return self._first_size

    async def tree(self, path: str) -> Any:
        """The contents of a folder, as OSWorld lists them; None if there are none, as for `file`."""
        try:
            return (await self._json("POST", "/list_directory", {"path": path})).get("directory_tree")
        except TooLong:
            return None
        except GuestRefusal as refusal:
            if refusal.status not in (400, 404):
                raise
            return None

    async def text(self, path: str) -> Any:
        """The JSON of a GET, such as /accessibility, /terminal and /cursor_position."""
        return _json_of(await self._asked("GET", path))

    async def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        found = _json_of(await self._asked(method, path, body))
        if not isinstance(found, dict):
            raise MachineLost(f"answered {path} with no JSON object")
        return found

    async def _asked(self, method: str, path: str, body: Any = None, *, most: int = MOST_ANSWER) -> bytes:
        given = {"data": body} if isinstance(body, aiohttp.FormData) else {"json": body} if body is not None else {}
        try:
            async with self._opened().request(method, self._address.url + path, **given) as answer:
                data = bytearray()
                while part := await answer.content.readany():
                    data += part
                    if len(data) > most:
                        raise TooLong(f"answered {path} with more than {most >> 20} MiB")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise MachineLost(f"did not answer {path} ({type(error).__name__}: {error})") from None
        if answer.status != 200:
            raise GuestRefusal(answer.status, f"{path} is refused ({answer.status}): {_said_in(data)}")
        return bytes(data)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            at = self._address
            connector = aiohttp.UnixConnector(path=at.socket) if at.socket else None
            headers = {"Authorization": f"Bearer {at.token}"} if at.token else {}
            limit = aiohttp.ClientTimeout(total=self._longest)
            self._session = aiohttp.ClientSession(connector=connector, headers=headers, timeout=limit, trust_env=False)
        return self._session


def _json_of(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise MachineLost("answered with no JSON") from None


def _said_in(data: bytes | bytearray) -> str:
    """The beginning of a guest's message with a refusal."""
    return data[:MOST_SAID].decode(errors="replace")
