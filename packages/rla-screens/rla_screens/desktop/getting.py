"""The data that verifiers read: OSWorld's getters by their names and fields. A file is a `FoundFile`, or None."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from rla_screens.desktop.client import GuestClient, GuestRefusal
from rla_screens.desktop.found_files import FoundFile
from rla_screens.desktop.params import DesktopParams
from rla_screens.desktop.resources import is_web, task_resource
from rla_screens.desktop.setting_up import executed

Getter = Callable[[Mapping[str, Any], GuestClient, DesktopParams], Awaitable[Any]]


async def _files(given: Mapping[str, Any], had: Callable[[str], Awaitable[bytes | None]]) -> Any:
    """A file, or of several (`multi`) those that `gives` selects; the others are its neighbours, named by `dest`."""
    if not given.get("multi"):
        path = str(given["path"])
        return FoundFile.of(await had(path), name=file_name(given.get("dest"), path))
    paths = [str(path) for path in given["path"]]
    dests = given["dest"] if isinstance(given.get("dest"), list) else [None] * len(paths)
    names = [file_name(dest, path) for dest, path in zip(dests, paths, strict=True)]
    found = [FoundFile.of(await had(path), name=name) for name, path in zip(names, paths, strict=True)]
    gives = given.get("gives", [0])
    beside = tuple(one for number, one in enumerate(found) if one is not None and number not in gives)
    chosen = [FoundFile.of(found[number], name=names[number], beside=beside) for number in gives]
    return chosen[0] if len(chosen) == 1 else chosen


def file_name(dest: Any, path: str) -> str:
    """The name under which OSWorld's metrics get a file, because they go by its extension."""
    if not dest and path.startswith("data:"):
        return ""
    return (str(dest) if dest else urlsplit(path).path if is_web(path) else path).rpartition("/")[2]


async def _vm_file(given: Mapping[str, Any], client: GuestClient, own: DesktopParams) -> Any:
    return await _files(given, client.file)


async def _cloud_file(given: Mapping[str, Any], client: GuestClient, own: DesktopParams) -> Any:
    return await _files(given, lambda path: task_resource(path, own))


async def _told(given: Mapping[str, Any], client: GuestClient) -> Any:
    """The output of a command; None if it does not end, because an agent must not escape a loss by replacing a file
    with a pipe.
    """
    try:
        return await executed(given, client)
    except GuestRefusal as refusal:
        if refusal.status != 504:
            raise
        return {}


async def _command_line(given: Mapping[str, Any], client: GuestClient, own: DesktopParams) -> Any:
    return (await _told(given, client)).get("output")


async def _command_error(given: Mapping[str, Any], client: GuestClient, own: DesktopParams) -> Any:
    return (await _told(given, client)).get("error")


async def _rule(given: Mapping[str, Any], client: GuestClient, own: DesktopParams) -> Any:
    return given["rules"]


async def _list_directory(given: Mapping[str, Any], client: GuestClient, own: DesktopParams) -> Any:
    return await client.tree(str(given["path"]))


async def _screen_size(given: Mapping[str, Any], client: GuestClient, own: DesktopParams) -> Any:
    width, height = await client.screen_size()
    return {"width": width, "height": height}


GETTERS: Mapping[str, Getter] = {
    "vm_file": _vm_file,
    "cloud_file": _cloud_file,
    "vm_command_line": _command_line,
    "vm_command_error": _command_error,
    "rule": _rule,
    "list_directory": _list_directory,
    "vm_screen_size": _screen_size,
}
