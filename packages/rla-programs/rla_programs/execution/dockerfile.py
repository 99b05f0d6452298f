"""A Dockerfile as steps for a shell's box, if it needs no image: a plain base, copied files, and harmless commands.

The sandbox has the programs of this machine. So a base counts as plain if it is an ordinary Linux with bash and perhaps
Python, and a command is harmless if it neither installs anything nor wants a network, services or other users.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from rla_programs.execution.shell import VARIABLES, Ran, Shell

PLAIN = re.compile(
    r"(?:docker\.io/)?(?:library/)?(?:ubuntu|debian|python)(?::[\w.-]+)?(?:@sha256:\w+)?"
    r"|ghcr\.io/laude-institute/t-bench/(?:ubuntu|python)-[\w.:-]+"
)
INSTALLS = re.compile(
    r"(?<![\w./-])(?:apt|apt-get|aptitude|dpkg|apk|yum|dnf|pacman|zypper|pip[\d.]*|pipx|uv|uvx|conda|mamba|npm|npx|yarn"
    r"|pnpm|gem|cargo|rustup|curl|wget|ssh|scp|rsync|git +(?:clone|fetch|pull|submodule)|go +(?:get|install|mod)"
    r"|systemctl|service|useradd|adduser|groupadd|chpasswd|su|sudo|mount|docker)(?![\w.-])"
)
INSTALLS_IN_PYTHON = re.compile(
    r"""["'](?P<called>apt|apt-get|pip[\d.]*|uv|uvx|conda|npm|npx|curl|wget|git[ "',]+(?:clone|fetch|pull))"""
    r"""(?:["'],| )"""
    r"|^[ \t]*(?:import|from) +(?P<module>requests|httpx|urllib\.request)\b",
    re.MULTILINE,
)
SCRIPTS = (".sh", ".bash", ".py")
HARMLESS = ("LABEL", "EXPOSE", "CMD", "MAINTAINER")  # Harbor runs its own command in place of CMD
# Folders of every plain base that a new box lacks.
FOLDERS = ("/boot", "/home", "/media", "/mnt", "/opt", "/run", "/srv")
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
ARCHIVE = re.compile(r"://|\.(?:tar|tgz|gz|bz2|xz|zst)\b")


class NeedsImage(Exception):
    """The sandbox cannot do what the Dockerfile says; the message says why."""


@dataclass(frozen=True, slots=True)
class Copy:
    """(file, absolute path in the box) of each file, folders, and a mode if one is given. If there is a folder at
    `target` by then, files with that path go into it. `word`: COPY, ADD, or WORKDIR, which makes a folder.
    """

    word: str
    files: list[tuple[Path, str]]
    folders: list[str]
    target: str
    mode: int = 0


@dataclass(frozen=True, slots=True)
class RunCommand:
    """A command for bash, its folder and its variables."""

    command: str
    folder: str
    variables: dict[str, str]


@dataclass(slots=True)
class BuildPlan:
    """The steps before an episode, then the folder and variables of its commands."""

    steps: list[Copy | RunCommand] = field(default_factory=list)
    folder: str = "/"
    variables: dict[str, str] = field(default_factory=dict)

    def filled(self, text: str) -> str:
        """`text` with the values of its variables."""
        known = VARIABLES | self.variables
        return VARIABLE.sub(lambda name: known.get(name[1] or name[2], ""), text.strip("\"'"))

    def follow(self, shell: Shell, *, seconds: float) -> str:
        """Play the steps, each for at most that many seconds. Returns why one failed; empty if none did."""
        for step in self.steps:
            if isinstance(step, Copy):
                files, there = step.files, step.target in FOLDERS
                if step.target in (into for _, into in files):
                    there = there or shell.run(f"[ -d {shlex.quote(step.target)} ]", "/", {}, seconds=seconds).code == 0
                    files = [
                        (one, f"{into}/{one.name}" if there and into == step.target else into) for one, into in files
                    ]
                if why := shell.place(files, folders=step.folders, mode=step.mode):
                    return f"{step.word} failed in the sandbox: {why}"
                continue
            ran: Ran = shell.run(step.command, step.folder, step.variables, seconds=seconds)
            if ran.code != 0:
                said = (ran.text.strip() or ran.ended or f"exit code {ran.code}").splitlines()[-1]
                return f"RUN {step.command[:80]} failed in the sandbox: {said[:200]}"
        why = shell.place([], folders=[self.folder])
        return f"WORKDIR failed in the sandbox: {why}" if why else ""


def plan_of(context: Path) -> BuildPlan:
    """The plan of the Dockerfile in `context`. Raises NeedsImage, and ValueError or OSError if it cannot be read."""
    if (context / ".dockerignore").exists():
        raise NeedsImage("environment/.dockerignore is read by Docker alone")
    lines = (context / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    plan, based = BuildPlan(), False
    for line in re.sub(r"\\[ \t]*\n", " ", text).splitlines():
        word, _, rest = line.strip().partition(" ")
        word, rest = word.upper(), rest.strip()
        if word == "FROM" and not based and PLAIN.fullmatch(rest.lower()):
            based = True
        elif word == "RUN":
            plan.steps.append(RunCommand(_harmless(rest), plan.folder, dict(plan.variables)))
        elif word in ("COPY", "ADD"):
            plan.steps.append(_copy(word, rest, context, plan))
        elif word == "WORKDIR":
            plan.folder = str(PurePosixPath(plan.folder, plan.filled(rest)))
            plan.steps.append(Copy(word, [], [plan.folder], plan.folder))
        elif word in ("ENV", "ARG"):
            name, _, value = rest.partition(" ")
            old = word == "ENV" and "=" not in name  # ENV NAME a value
            for pair in [f"{name}={value.strip()}"] if old else shlex.split(rest):
                name, _, value = pair.partition("=")
                plan.variables[name] = plan.filled(value)
        elif word not in HARMLESS and not (word == "USER" and rest in ("root", "0")):
            raise NeedsImage(f"its Dockerfile has {word} {rest}"[:100])
    if not based:
        raise ValueError("environment/Dockerfile has no FROM")
    return plan


def installer(file: Path) -> str:
    """The first command in a script of bash or Python that installs or downloads something; empty for other files."""
    data = file.read_bytes() if file.is_file() else b""
    first, _, _ = data.partition(b"\n")
    if file.suffix not in SCRIPTS and not first.startswith(b"#!"):
        return ""
    lines = data.decode("utf-8", "replace").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    if file.suffix == ".py" or b"python" in first:
        found = INSTALLS_IN_PYTHON.search(text)
        return (found["called"] or found["module"]) if found else ""
    called = INSTALLS.search(text)
    return called[0].strip() if called else ""


def _harmless(command: str) -> str:
    command = shlex.join(json.loads(command)) if command.startswith("[") else command
    if found := INSTALLS.search(command) or re.match(r"--\w+", command) or re.search(r"<<-?['\"]?\w+", command):
        raise NeedsImage(f"its Dockerfile has RUN with {found[0].strip()}")
    return command


def _copy(word: str, rest: str, context: Path, plan: BuildPlan) -> Copy:
    flags = list[str]()
    while rest.startswith("--"):
        flag, _, rest = rest.partition(" ")
        flags.append(flag)
        rest = rest.lstrip()
    try:
        *sources, last = json.loads(rest)
    except (ValueError, TypeError):
        *sources, last = rest.split()
    modes = [int(one[8:], 8) for one in flags if re.fullmatch(r"--chmod=[0-7]{3,4}", one)]
    unknown = [one for one in flags if not re.match(r"--chown=|--chmod=[0-7]{3,4}$", one)]
    if odd := unknown or [one for one in sources if "<<" in one or (word == "ADD" and ARCHIVE.search(one))]:
        raise NeedsImage(f"its Dockerfile has {word} with {odd[0]}")
    target = plan.filled(last)
    into = PurePosixPath(posixpath.normpath(posixpath.join(plan.folder, target)))
    files, folders = list[tuple[Path, str]](), list[str]()
    for source in map(plan.filled, sources):
        found = [context] if source in (".", "./", "/") else sorted(context.glob(source.lstrip("/")))
        if not found or not all(path.resolve().is_relative_to(context.resolve()) for path in found):
            raise ValueError(f"environment/Dockerfile copies {source!r}, which is not in environment/")
        for path in found:
            if not path.is_dir():
                within = folders or posixpath.basename(target) in ("", ".", "..")
                files.append((path, str(into / path.name if within else into)))
                continue
            for one in (path, *sorted(path.rglob("*"))):
                place = str(into / one.relative_to(path))
                if one.is_file():
                    files.append((one, place))
                elif one.is_dir():
                    folders.append(place)
    return Copy(word, files, folders, str(into), modes[0] if modes else 0)
