"""Task folders in Harbor's format (`task.toml`, schema 1): read, checked, and identified by their contents.

task.toml  instruction.md  environment/Dockerfile  tests/test.sh  solution/solve.sh (optional)
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from rla_programs.execution.dockerfile import BuildPlan, NeedsImage, RunCommand, installer, plan_of
from rla_programs.execution.shell import untrusted_files

from rla.errors import UserError

CONFIG = "task.toml"
LARGEST = 64 << 20  # bytes of a folder
CANARY = re.compile(r"(?:[ \t]*(?:<!--|#).*canary.*\n|\s*\n)*", re.IGNORECASE)  # marks that Harbor hides, too
SIZE = re.compile(r"(\d+(?:\.\d+)?)([GMK])B?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborTask:
    """One folder. `sandbox`, `backend`: why it cannot be played there. `agent_s`: 0 if it is not given."""

    folder: Path
    digest: str
    instruction: str
    category: str
    plan: BuildPlan
    verifier_variables: dict[str, str]
    solution_variables: dict[str, str]
    agent_s: float
    verifier_s: float
    build_s: float
    memory_mb: int
    storage_mb: int
    solved: bool
    sandbox: list[str]
    backend: list[str]

    def files(self, name: str, target: str) -> list[tuple[Path, str]]:
        """The files of a subfolder, and their paths below `target`."""
        top = self.folder / name
        return [(path, f"{target}/{path.relative_to(top).as_posix()}") for path in top.rglob("*") if path.is_file()]

    def why_not(self, backend: str) -> str:
        """Why it cannot be played with this backend, which may be empty; empty if it can."""
        reasons = self.backend if backend else [*self.sandbox, *(self.backend or ["env.own.backend is empty"])]
        return "; ".join(dict.fromkeys(reasons)) if self.sandbox else ""


def task_folders(top: Path) -> list[Path]:
    """The task folders in `top` and two levels below, or `top` itself. Raises UserError if there are none."""
    places = [f"{above}{name}" for above in ("", "*/", "*/*/") for name in (CONFIG, "instruction.md")]
    found = dict.fromkeys(path.parent for place in places for path in top.glob(place))
    if not found:
        raise UserError(f"{top}: holds no folder with a {CONFIG}; name a folder of tasks in Harbor's format")
    return sorted(path for path in found if found.keys().isdisjoint(path.parents))  # steps and files lie below


def _digest(folder: Path, files: list[Path]) -> str:
    """SHA-256 of names, contents or targets, and execute bits."""
    contents = [os.readlink(path) if path.is_symlink() else sha256(path.read_bytes()).hexdigest() for path in files]
    names = [(path.relative_to(folder).as_posix(), os.access(path, os.X_OK)) for path in files]
    return sha256(repr([*zip(names, contents, strict=True)]).encode()).hexdigest()


def read_folder(folder: Path) -> HarborTask:
    """Raises ValueError with the file or key that is wrong."""
    try:
        files = untrusted_files(folder, LARGEST)
        return _task_of(folder, tomllib.loads((folder / CONFIG).read_text(encoding="utf-8")), files)
    except FileNotFoundError as error:
        raise ValueError(f"it has no {os.path.relpath(error.filename, folder)}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{CONFIG}: {error}") from None
    except (OSError, TypeError, AttributeError, NotImplementedError, RecursionError) as error:  # odd globs and nesting
        raise ValueError(f"it cannot be read ({type(error).__name__}: {error})") from None


def _task_of(folder: Path, config: dict[str, Any], files: list[Path]) -> HarborTask:
    environment, agent, verifier = (_table(config, name) for name in ("environment", "agent", "verifier"))
    usual, solved = environment.get("network_mode"), (folder / "solution/solve.sh").is_file()
    phases = ["it changes its network"] * any(one.get("network_mode") not in (None, usual) for one in (agent, verifier))
    nowhere, instruction = list(_nowhere(folder, config)), ""
    if not nowhere:
        (folder / "tests/test.sh").stat()
        instruction = CANARY.sub("", (folder / "instruction.md").read_text(encoding="utf-8"), count=1).strip()
        if not instruction:
            raise ValueError("instruction.md is empty")
    sandbox, plan = [*nowhere, *_beyond_sandbox(folder, config)], BuildPlan()
    if not sandbox:
        try:
            plan = plan_of(folder / "environment")
        except NeedsImage as reason:
            sandbox.append(str(reason))
    if not (sandbox or solved):  # playing a solution would show whether its tests run here
        setup = " ".join(step.command for step in plan.steps if isinstance(step, RunCommand))
        for path in (path for path in files if folder / "tests" in path.parents or path.name in setup):
            if not sandbox and (called := installer(path)):
                sandbox.append(f"its {path.relative_to(folder)} calls {called}, which needs an image or a network")
    plan.variables |= _texts(environment, "environment.env")
    plan.folder = str(environment.get("workdir") or plan.folder)
    return HarborTask(
        folder=folder,
        digest=_digest(folder, files),
        instruction=instruction,
        category=str(_table(config, "metadata").get("category") or "harbor"),
        plan=plan,
        verifier_variables=_texts(verifier, "verifier.env"),
        solution_variables=_texts(_table(config, "solution"), "solution.env"),
        agent_s=_number(agent, "agent.timeout_sec", 0.0),
        verifier_s=_number(verifier, "verifier.timeout_sec", 600.0),
        build_s=_number(environment, "environment.build_timeout_sec", 600.0),
        memory_mb=_megabytes(environment, "memory"),
        storage_mb=_megabytes(environment, "storage"),
        solved=solved,
        sandbox=sandbox,
        backend=[*nowhere, *phases],
    )


def _table(config: dict[str, Any], name: str) -> dict[str, Any]:
    found = config.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{CONFIG}: {name} is not a table")
    return found


def _number(table: dict[str, Any], key: str, default: float) -> float:
    value = table.get(key.partition(".")[2], default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not (value == default or 0 < value <= 86400):
        raise ValueError(f"{CONFIG}: {key} is {value!r}; it must be a number above 0 and at most 86400")
    return float(value)


def _megabytes(table: dict[str, Any], name: str) -> int:
    """`memory_mb`, or the older `memory` with a unit, such as "2G"."""
    value = table.get(f"{name}_mb", table.get(name, 1 << 30))
    if isinstance(value, str) and (found := SIZE.fullmatch(value.strip())):
        value = max(1, int(float(found[1]) * {"G": 1024, "M": 1, "K": 1 / 1024}[found[2].upper()]))
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{CONFIG}: environment.{name} is {value!r}; write {name}_mb as a whole number above 0")
    return value


def _texts(table: dict[str, Any], key: str) -> dict[str, str]:
    found = _table(table, key.partition(".")[2])
    if not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"{CONFIG}: {key} is not a table of texts")
    return found


def _nowhere(folder: Path, config: dict[str, Any]) -> Iterator[str]:
    """Features of Harbor that are not played here, whatever runs the task."""
    environment, verifier = _table(config, "environment"), _table(config, "verifier")
    version = str(config.get("schema_version", config.get("version", "1")))
    reasons = {
        f"its schema version is {version}, and 1 is known": version.partition(".")[0] != "1",
        "it has several steps": config.get("steps"),
        "it is for Windows": str(environment.get("os", "linux")).lower() != "linux",
        "it wants a GPU or TPU": environment.get("gpus") or environment.get("tpu"),
        "it wants MCP servers": environment.get("mcp_servers"),
        "its tests want an environment of their own": verifier.get("environment_mode") == "separate"
        or verifier.get("environment"),
        "it collects files of services": verifier.get("collect"),
        "it continues the trajectory of another agent": (folder / "trajectory.json").exists(),
    }
    return (reason for reason, holds in reasons.items() if holds)


def _beyond_sandbox(folder: Path, config: dict[str, Any]) -> Iterator[str]:
    """What needs an image, a network or other users. The Dockerfile is read elsewhere."""
    environment, composed = _table(config, "environment"), sorted(folder.glob("environment/docker-compose.y*ml"))
    reasons = {
        f"it needs the image {environment.get('docker_image')}": environment.get("docker_image"),
        f"it needs the images of environment/{composed[0].name if composed else ''}": composed,
        "it has a health check, so it runs a service": environment.get("healthcheck"),
        "it lies below /usr, which can be read in the sandbox": folder.resolve().is_relative_to("/usr"),
    }
    for name in ("environment", "agent", "verifier"):
        section, values = _table(config, name), _texts(_table(config, name), f"{name}.env").values()
        wants = section.get("allowed_hosts") or section.get("network_mode") == "allowlist"
        reasons[f"{name}.network_mode wants a network, and the sandbox has none"] = wants
        reasons[f"{name}.user is {section.get('user')!r}"] = section.get("user") not in (None, "root", 0)
        reasons[f"{name}.env takes values of this machine"] = any("${" in value for value in values)
    return (reason for reason, holds in reasons.items() if holds)
