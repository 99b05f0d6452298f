"""The part of the package `harbor` that rla-harbor calls, for machines without it: the same names and arguments.

Written after harbor 0.26, which needs Python 3.12. If harbor is installed, the tests call it instead.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class EnvironmentType(StrEnum):
    DOCKER = "docker"
    DAYTONA = "daytona"


@dataclass(frozen=True, kw_only=True)
class ExecResult:
    stdout: str | None = None
    stderr: str | None = None
    return_code: int


class BaseEnvironment:
    def __init__(
        self,
        *,
        environment_dir: Path,
        environment_name: str,
        session_id: str,
        trial_paths: TrialPaths,
        task_env_config: Any,
        network_policy: Any,
    ) -> None:
        self.environment_dir, self.session_id, self.trial_paths = environment_dir, session_id, trial_paths
        self.default_user: str | int | None = None

    async def run_healthcheck(self) -> None: ...

    @contextlib.contextmanager
    def with_default_user(self, user: str | int | None) -> Iterator[None]:
        yield


class TrialPaths:
    def __init__(self, trial_dir: Path) -> None:
        self.verifier_dir = trial_dir / "verifier"

    def mkdir(self) -> None:
        self.verifier_dir.mkdir(parents=True, exist_ok=True)


class Task:
    def __init__(self, task_dir: Path) -> None:
        found = tomllib.loads((task_dir / "task.toml").read_text())
        users = {name: SimpleNamespace(user=found.get(name, {}).get("user")) for name in ("agent", "verifier")}
        environment = SimpleNamespace(resolve_baseline=lambda: "public")
        self.config = SimpleNamespace(environment=environment, **users)
        self.paths = SimpleNamespace(environment_dir=task_dir / "environment", tests_dir=task_dir / "tests")
        self.short_name = task_dir.name


@dataclass(frozen=True, kw_only=True)
class EnvironmentConfig:
    type: EnvironmentType | None = None
    import_path: str | None = None

    @classmethod
    def model_validate(cls, values: dict[str, Any]) -> EnvironmentConfig:
        return cls(**values)


class EnvironmentFactory:
    @staticmethod
    def run_preflight(type: EnvironmentType | None, import_path: str | None = None) -> None:
        if type is not None:
            raise SystemExit("Docker is not installed or not on PATH. Please install Docker and try again.")

    @staticmethod
    def create_environment_from_config(config: EnvironmentConfig, **given: Any) -> Any:
        assert config.import_path is not None
        module, _, name = config.import_path.partition(":")
        return getattr(importlib.import_module(module), name)(**given)


@dataclass(kw_only=True)
class Verifier:
    task: Task
    trial_paths: TrialPaths
    environment: Any
    logs: str = field(default="/logs/verifier", init=False)

    async def verify(self) -> Any:
        await self.environment.exec(command=f"rm -f -- {self.logs}/reward.txt {self.logs}/reward.json")
        await self.environment.upload_dir(source_dir=self.task.paths.tests_dir, target_dir="/tests")
        await self.environment.exec(command="chmod +x /tests/test.sh", user="root")
        await self.environment.exec(command=f"/tests/test.sh > {self.logs}/test-stdout.txt 2>&1", env=None)
        await self.environment.download_dir(source_dir=self.logs, target_dir=self.trial_paths.verifier_dir)
        if (file := self.trial_paths.verifier_dir / "reward.json").exists():
            return SimpleNamespace(rewards=json.loads(file.read_text()))
        file = self.trial_paths.verifier_dir / "reward.txt"
        return SimpleNamespace(rewards={"reward": float(file.read_text())})


MODULES = {
    "environments.base": (BaseEnvironment, ExecResult),
    "environments.factory": (EnvironmentFactory,),
    "models.environment_type": (EnvironmentType,),
    "models.task.task": (Task,),
    "models.trial.config": (EnvironmentConfig,),
    "models.trial.paths": (TrialPaths,),
    "verifier.verifier": (Verifier,),
}


def harbor_or_fake(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the real package is there; if not, the names above take its place."""
    try:
        importlib.import_module("harbor.environments.factory")
        return True
    except ImportError:
        pass
    for name, members in MODULES.items():
        parts = f"harbor.{name}".split(".")
        for size in range(1, len(parts) + 1):
            path = ".".join(parts[:size])
            if path not in sys.modules or not hasattr(sys.modules[path], "__fake__"):
                module = ModuleType(path)
                module.__fake__ = True  # type: ignore[attr-defined]
                module.__path__ = []
                monkeypatch.setitem(sys.modules, path, module)
        for member in members:
            setattr(sys.modules[f"harbor.{name}"], member.__name__, member)
    monkeypatch.delitem(sys.modules, "harbor_tests.shell_environment", raising=False)
    return False
