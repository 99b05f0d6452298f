"""The setup steps of OSWorld's tasks, which run before an episode and before it is judged (`postconfig`).

Types: download, upload_file, open, launch, execute, command, sleep, activate_window, close_window.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rla_screens.desktop.client import GuestClient, GuestRefusal
from rla_screens.desktop.params import DesktopParams
from rla_screens.desktop.resources import ResourceMissing, task_resource

LONGEST_SLEEP = 120.0
WINDOW_S = 20.0  # seconds for a newly launched window to appear
LOOK_S = 0.2
Step = Mapping[str, Any]
PASSWORD = "{CLIENT_PASSWORD}"
SIZES = ("{SCREEN_WIDTH}", "{SCREEN_HEIGHT}", "{SCREEN_WIDTH_HALF}", "{SCREEN_HEIGHT_HALF}")
PLACEHOLDER = re.compile(r"(?<!\$)\{[A-Z][A-Z0-9_]+\}")  # `${HOME}` belongs to the shell


# Exceptions for a part of a task that does not have the expected shape.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


class SetupFailure(Exception):
    """A step that failed; the message names it."""


async def set_up(steps: Sequence[Step], client: GuestClient, own: DesktopParams) -> None:
    """Run the steps in order. Raises SetupFailure, and MachineLost as the client does."""
    for step in steps:
        done = STEPS.get(step.get("type", ""))
        if done is None:
            raise SetupFailure(f"there is no setup {step.get('type')!r} here")
        try:
            await done(step.get("parameters", {}), client, own)
        except (GuestRefusal, ResourceMissing, *MALFORMED) as error:
            raise SetupFailure(f"{step['type']} failed ({type(error).__name__}: {error})") from None


async def _download(given: Step, client: GuestClient, own: DesktopParams) -> None:
    for entry in given["files"]:
        await client.upload(entry["path"], await task_resource(entry["url"], own))


async def _upload(given: Step, client: GuestClient, own: DesktopParams) -> None:
    """`local_path`: a name in `env.own.files`."""
    for entry in given["files"]:
        name = Path(entry["local_path"]).name
        await client.upload(entry["path"], await task_resource(name, own))


async def _open(given: Step, client: GuestClient, own: DesktopParams) -> None:
    await client.open_file(given["path"])


async def _launch(given: Step, client: GuestClient, own: DesktopParams) -> None:
    await client.launch(await filled(given["command"], client), shell=bool(given.get("shell", False)))


async def _execute(given: Step, client: GuestClient, own: DesktopParams) -> None:
    """Run until `until` holds (returncode, stdout, stderr), at most five times."""
    wanted = given.get("until") or {}
    for _ in range(5):
        done = await executed(given, client)
        told = {"returncode": done.get("returncode"), "stdout": done.get("output"), "stderr": done.get("error")}
        held = [told["returncode"] == wanted["returncode"]] if "returncode" in wanted else []
        held += [str(wanted[name]) in str(told[name]) for name in ("stdout", "stderr") if name in wanted]
        if not held or any(held):
            return
        await asyncio.sleep(1)
    raise ValueError("what it waits for did not come")


async def _sleep(given: Step, client: GuestClient, own: DesktopParams) -> None:
    await asyncio.sleep(min(LONGEST_SLEEP, max(0.0, float(given["seconds"]))))


def _window(deed: str) -> Callable[[Step, GuestClient, DesktopParams], Awaitable[None]]:
    async def done(given: Step, client: GuestClient, own: DesktopParams) -> None:
        until = time.monotonic() + WINDOW_S
        while True:
            try:
                name, strict = given["window_name"], bool(given.get("strict"))
                return await client.to_window(deed, name, strict=strict, by_class=bool(given.get("by_class")))
            except GuestRefusal:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(LOOK_S)

    return done


async def executed(given: Mapping[str, Any], client: GuestClient) -> Any:
    """The guest's answer to a command of a task."""
    return await client.execute(await filled(given["command"], client), shell=bool(given.get("shell", False)))


async def filled(command: Any, client: GuestClient) -> Any:
    """A command with OSWorld's placeholders filled in: the size of the machine's screen, and half of it. A task that
    needs the password is refused.
    """
    text = str(command)
    if PASSWORD in text:
        raise ValueError("it needs the password of a user who may do everything, and there is none")
    sizes = dict[str, int]()
    if any(name in text for name in SIZES):
        width, height = await client.first_size()
        sizes = dict(zip(SIZES, (width, height, width // 2, height // 2), strict=True))
    return replaced(command, sizes)


def replaced(command: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(command, list):
        return [replaced(word, sizes) for word in command]
    text = str(command)
    for name, size in sizes.items():
        text = text.replace(name, str(size))
    return text


def never_filled(command: Any) -> str:
    """A short description of the placeholders of a command that `filled` does not know; empty if there are none."""
    text = str(command)
    if PASSWORD in text:
        return "a password"
    return next((f"the placeholder {name[:40]}" for name in PLACEHOLDER.findall(text) if name not in SIZES), "")


RUN, WINDOW = (
    frozenset({"command", "shell", "until", "stdout", "stderr"}),
    frozenset({"window_name", "strict", "by_class"}),
)
FIELDS: Mapping[str, frozenset[str]] = {  # a step with other fields needs something that is not implemented here
    "download": frozenset({"files"}),
    "upload_file": frozenset({"files"}),
    "open": frozenset({"path"}),
    "launch": frozenset({"command", "shell"}),
    "execute": RUN,
    "command": RUN,
    "sleep": frozenset({"seconds"}),
    "activate_window": WINDOW,
    "close_window": WINDOW,
}
STEPS: Mapping[str, Callable[[Step, GuestClient, DesktopParams], Awaitable[None]]] = {
    "download": _download,
    "upload_file": _upload,
    "open": _open,
    "launch": _launch,
    "execute": _execute,
    "command": _execute,
    "sleep": _sleep,
    "activate_window": _window("activate"),
    "close_window": _window("close"),
}
