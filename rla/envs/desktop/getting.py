"""What verifiers look at: OSWorld's getters by their names and fields. Files are bytes, None where there is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rla.envs.desktop.client import GuestClient
from rla.envs.desktop.params import DesktopParams
from rla.envs.desktop.resources import reachable, task_resource
from rla.envs.desktop.setting_up import filled

Getter = Callable[[Mapping[str, Any], GuestClient, DesktopParams], Awaitable[Any]]


async def _vm_file(given: Mapping[str, Any], client: GuestClient, own: DesktopParams) -> Any:
    """A file, or those that `gives` names of several (`multi`)."""
    if not given.get("multi"):
        return await client.file(str(given["path"]))
    found = [await client.file(str(path)) for path in given["path"]]
    gives = given.get("gives", [0])
    return found[gives[0]] if len(gives) == 1 else [found[number] for number in gives]


async def _cloud_file(given: Mapping[str, Any], client: GuestClient, own: DesktopParams) -> Any:
    if not given.get("multi"):
        return await task_resource(str(given["path"]), own)
    found = [await task_resource(str(path), own) for path in given["path"]]
    gives = given.get("gives", [0])
    return found[gives[0]] if len(gives) == 1 else [found[number] for number in gives]


async def _command_line(given: Mapping[str, Any], client: GuestClient, own: DesktopParams) -> Any:
    done = await client.execute(filled(given["command"], own), shell=bool(given.get("shell", False)))
    return done.get("output")


async def _command_error(given: Mapping[str, Any], client: GuestClient, own: DesktopParams) -> Any:
    done = await client.execute(filled(given["command"], own), shell=bool(given.get("shell", False)))
    return done.get("error")


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


def unsupported_getter(given: Mapping[str, Any] | None, own: DesktopParams) -> str:
    """Why what it names cannot be looked at; empty where it can."""
    if not given:
        return ""
    kind = given.get("type")
    if kind not in GETTERS:
        return f"getter {kind!r}"
    if kind == "cloud_file":
        paths = given.get("path")
        for path in paths if isinstance(paths, list) else [paths]:
            if not reachable(str(path), own):
                return "a file that cannot be had (env.own.files, env.own.download)"
    return ""
