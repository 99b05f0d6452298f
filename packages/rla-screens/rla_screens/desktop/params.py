"""Parameters of the environment `desktop`: `env.own`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rla.config import Config
from rla.config.load import web_address
from rla.config.schema import LONGEST_WAIT, ranged, without_effect
from rla.errors import UserError
from rla_screens.desktop.remote import screen_of_address
from rla_screens.screens.forms import FormName

DesktopSuccess = Literal["positive", "full", "score"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DesktopParams:
    """Parameters of the environment `desktop` (`docs/guide/desktop.md`)."""

    actions: FormName = "browsergym"  # how actions are written: calls, short words, or the published tool
    # positive: a score above 0 wins (published); full: a score of 1 wins; score: it is the reward
    # (env.reward_threshold)
    success: DesktopSuccess = "positive"
    hints: bool = False  # start the instructions of our own tasks with their first hint
    width: int = ranged(1280, least=320, most=3840)  # of the screen of a local machine, in pixels
    height: int = ranged(720, least=240, most=2160)
    still_ms: int = ranged(
        1500, least=0, most=10000
    )  # ms that a screenshot waits at most until the screen stands still
    osworld_python: str = ""  # the Python of a virtual environment with desktop_env, which scores OSWorld's tasks
    test_path: str = ""  # path to import held-out tasks from; empty: the tasks of tasks.path whose ids are held out
    files: str = ""  # a folder with the files that tasks download, by their names; empty: none
    download: bool = False  # whether files of tasks may be downloaded from the network
    machine: Literal["local", "remote", "docker"] = without_effect("local")
    machines: int = without_effect(2, least=1, most=256)  # episodes at a time
    addresses: tuple[str, ...] = without_effect(())  # remote: base URLs of guest servers
    token_env: str = without_effect("RLA_GUEST_TOKEN")  # remote, docker: the environment variable with their token
    image: str = without_effect("")  # docker: the image
    docker: tuple[str, ...] = without_effect(())  # docker: further arguments of `docker run`, such as volumes
    osworld: str = without_effect("")  # local: a checkout of OSWorld whose guest server replaces ours
    guest_python: str = without_effect("")  # local: the Python with that server's dependencies
    accessible: bool = without_effect(False)  # local: applications expose their widgets (GET /accessibility)
    start_s: float = without_effect(60.0, above=0.0, most=LONGEST_WAIT)  # seconds that a machine has to start
    step_s: float = without_effect(90.0, above=0.0, most=LONGEST_WAIT)  # seconds that it has for one request
    memory_mb: int = without_effect(2048, least=256, most=1048576)  # of a local machine, if cgroups are available
    disk_mb: int = without_effect(512, least=64, most=1048576)  # of its home and of its temporary files, each


def desktop_params(config: Config) -> DesktopParams:
    """The environment's own parameters."""
    own: DesktopParams = config.env.own
    return own


def check_desktop(config: Config) -> None:
    """Raises UserError for parameters that do not fit together."""
    own = desktop_params(config)
    if config.policy.decoding != "free":
        raise UserError(f"policy.decoding is {config.policy.decoding}; env.name: desktop needs free")
    if own.machine == "remote" and not own.addresses:
        raise UserError("env.own.machine is remote; set env.own.addresses to base URLs such as http://localhost:5000")
    for address in own.addresses:
        if web_address(address) is None:
            raise UserError(f"env.own.addresses: {address!r} is not a base URL such as http://localhost:5000")
    screens = [screen_of_address(address) for address in own.addresses]
    if twice := [address for number, address in enumerate(own.addresses) if screens[number] in screens[:number]]:
        raise UserError(f"env.own.addresses: {twice[0]} is named twice, and one screen is for one episode at a time")
    if own.machine == "docker" and not own.image:
        raise UserError("env.own.machine is docker; set env.own.image to an image that serves OSWorld's protocol")
    if own.osworld and not own.guest_python:
        raise UserError("env.own.osworld is set; set env.own.guest_python to a Python with its server's dependencies")
    if own.actions == "computer_use" and config.policy.history != "window":
        raise UserError("env.own.actions is computer_use; set policy.history to window, as published")
