"""An environment of harbor for tests: its container is a shell of rla-programs. Imported by harbor, by its path."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from rla_programs.execution import Limits
from rla_programs.execution.shell import Shell, shell_boxes

NAMES: list[str] = []  # of environments that live


class ShellEnvironment(BaseEnvironment):  # type: ignore[misc]
    """`start` fails if the task's environment folder has a file `broken`."""

    @staticmethod
    def type() -> str:
        return "shell"

    def _validate_definition(self) -> None: ...

    async def start(self, force_build: bool) -> None:
        NAMES.append(self.session_id)
        if (log := Path(self.environment_dir) / "broken").exists():
            raise RuntimeError(f"the image cannot be built: {log.read_text()}")
        self._shell = Shell(shell_boxes(), Limits(wall_s=60.0, cpu_s=60.0, processes=64, output_kb=8192))
        await self.exec("mkdir -p /app /logs/verifier /logs/agent", cwd="/")

    async def stop(self, delete: bool) -> None:
        assert delete
        NAMES.remove(self.session_id)
        if hasattr(self, "_shell"):
            self._shell.close()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> Any:
        seconds = float(timeout_sec or 60)
        ran = await asyncio.to_thread(self._shell.run, command, cwd or "/app", env or {}, seconds=seconds)
        if ran.code is None:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        return ExecResult(stdout=ran.text, stderr=None, return_code=ran.code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        assert self._shell.place([(Path(source_path), target_path)]) == ""

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        for path in Path(source_dir).rglob("*"):
            if path.is_file():
                await self.upload_file(path, f"{target_dir}/{path.relative_to(source_dir)}")

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        (text,) = self._shell.texts(source_path)
        Path(target_path).write_text(text)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        listed = await self.exec(f"find {shlex.quote(source_dir)} -type f")
        for path in listed.stdout.split():
            target = Path(target_dir) / Path(path).relative_to(source_dir)
            target.parent.mkdir(parents=True, exist_ok=True)
            await self.download_file(path, target)
