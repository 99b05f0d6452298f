"""Where the commands of an episode run: in a shell of rla-programs, or in an environment of the package `harbor`.

The tests come into either after the last command. The shell has no process of the policy by then, and files of the
policy at the places of tests, rewards and settings of pytest are moved away.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import shlex
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rla_programs.execution.box import BoxError
from rla_programs.execution.local import LocalSandbox
from rla_programs.execution.records import Limits
from rla_programs.execution.shell import PYTEST_FILES, Ran, Shell
from rla_programs.tool.results import cut_text

from rla.envs.observation import EnvironmentFailure
from rla.errors import UserError
from rla.plugins import from_checkout
from rla.text import one_line, whole_text
from rla_harbor.folders import HarborTask
from rla_harbor.params import HarborParams

TESTS, LOGS = "/tests", "/logs/verifier"
PRINTED = 1 << 18  # bytes of a command's output; one that prints more is stopped, as in the sandbox
# dd passes each byte on at once. It is awaited for a second at most, because background processes may keep it open.
BOUNDED = """exec 3> >(exec dd bs=1 count={printed} 2> /dev/null)
(trap 'echo; echo {mark}; pwd -P' EXIT; eval "set --; $1") >&3 2>&1 3>&-
code=$?; exec 3>&-; for _ in {{1..20}}; do kill -0 $! 2> /dev/null || break; sleep 0.05; done; exit $code"""


class SandboxMachine:
    """A shell of the sandbox. Raises EnvironmentFailure if it fails itself. `folder`: of the next command."""

    def __init__(self, task: HarborTask, own: HarborParams, sandbox: LocalSandbox) -> None:
        self._task, self._sandbox = task, sandbox
        longest = max(own.command_s, task.agent_s, task.verifier_s, task.build_s)
        memory, disk = min(own.memory_mb, task.memory_mb), min(own.storage_mb, task.storage_mb)
        self._limits = Limits(wall_s=longest, cpu_s=longest, memory_mb=memory, file_mb=disk, processes=own.processes)
        self._shell: Any = None
        self._threads = ThreadPoolExecutor(2)  # its own, so that no command waits; the second ends one that runs
        self.folder = task.plan.folder

    async def start(self) -> None:
        self._shell = await self._call(Shell, self._sandbox, self._limits)
        if why := await self._call(self._task.plan.follow, self._shell, seconds=self._task.build_s):
            raise EnvironmentFailure(why)

    async def run(self, command: str, seconds: float) -> Ran:
        ran: Ran = await self._call(self._shell.run, command, self.folder, self._task.plan.variables, seconds=seconds)
        self.folder = ran.folder
        return ran

    async def solve(self) -> Ran:
        """Play the task's own solution."""
        await self._call(self._shell.place, self._task.files("solution", "/solution"))
        given = self._task.plan.variables | self._task.solution_variables
        seconds = self._task.agent_s or self._task.verifier_s
        ran: Ran = await self._call(self._shell.run, "bash /solution/solve.sh", self.folder, given, seconds=seconds)
        return ran

    async def verify(self) -> float | None:
        """The reward of the task's tests; None if they leave none that can be read."""
        tests, given = self._task.files("tests", TESTS), self._task.plan.variables | self._task.verifier_variables
        if await self._call(self._shell.place, tests, folders=[LOGS], fresh=[TESTS, LOGS, *PYTEST_FILES], mode=0o755):
            return None
        told = {"seconds": self._task.verifier_s, "log": f"{LOGS}/test-stdout.txt"}
        await self._call(self._shell.run, f"{TESTS}/test.sh", self._task.plan.folder, given, **told)
        return reward_in(*await self._call(self._shell.texts, f"{LOGS}/reward.json", f"{LOGS}/reward.txt"))

    async def stop(self) -> None:
        if self._shell is not None:
            await self._call(self._shell.close)
        self._threads.shutdown(wait=False)

    async def _call(self, function: Callable[..., Any], *given: Any, **options: Any) -> Any:
        with _failing("the sandbox failed", BoxError):
            return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*given, **options))


def reward_in(as_json: str, as_text: str) -> float | None:
    """The reward in `reward.json` (its entry `reward`, or its only one), else in `reward.txt`."""
    try:
        found = json.loads(as_json) if as_json.strip() else float(as_text)
        if isinstance(found, dict):
            found = found.get("reward", next(iter(found.values())) if len(found) == 1 else None)
        value = float(found) if isinstance(found, int | float) and not isinstance(found, bool) else math.nan
    except (ValueError, OverflowError, RecursionError):
        return None
    return value if math.isfinite(value) else None


def check_backend(backend: str) -> None:
    """Raises UserError if harbor is not installed, or refuses the backend on this machine."""
    try:
        from harbor.environments.factory import EnvironmentFactory
        from harbor.models.environment_type import EnvironmentType
    except ImportError:
        remedy = from_checkout("packages/rla-harbor[harbor]")
        raise UserError(f"env.own.backend: {backend} needs the package harbor and Python 3.12; {remedy}") from None
    try:
        named = {"type": None, "import_path": backend} if ":" in backend else {"type": EnvironmentType(backend)}
        EnvironmentFactory.run_preflight(**named)
    except (Exception, SystemExit) as error:  # each of harbor's backends has errors of its own
        raise UserError(f"env.own.backend: harbor cannot use {backend} here ({_said(error)})") from None


class BackendMachine:
    """As `SandboxMachine`, in an environment of harbor, which builds images, runs tests and reads rewards."""

    def __init__(self, task: HarborTask, backend: str) -> None:
        self._task, self._backend = task, backend
        self._place = Path(tempfile.mkdtemp(prefix="rla-harbor-"))  # gets the logs that harbor collects
        self._environment: Any = None

    async def start(self) -> None:
        with _failing(f"{self._backend} did not start"):
            from harbor.environments.factory import EnvironmentFactory
            from harbor.models.task.task import Task
            from harbor.models.trial.config import EnvironmentConfig
            from harbor.models.trial.paths import TrialPaths

            self._theirs, self._paths = Task(self._task.folder), TrialPaths(trial_dir=self._place)
            self._paths.mkdir()
            named = {"import_path" if ":" in self._backend else "type": self._backend}
            self._environment = EnvironmentFactory.create_environment_from_config(
                EnvironmentConfig.model_validate(named),
                environment_dir=self._theirs.paths.environment_dir,
                environment_name=self._theirs.short_name,
                session_id=f"rla-{uuid.uuid4().hex[:12]}__env",
                trial_paths=self._paths,
                task_env_config=self._theirs.config.environment,
                network_policy=self._theirs.config.environment.resolve_baseline(),
            )
            await asyncio.wait_for(self._environment.start(force_build=False), self._task.build_s)
            await self._environment.run_healthcheck()
            found = await self._environment.exec("pwd", user=self._theirs.config.agent.user)
            self.folder = (found.stdout or "/").strip().splitlines()[-1]

    async def run(self, command: str, seconds: float) -> Ran:
        mark = uuid.uuid4().hex  # before the last folder, at the end of the output
        text = whole_text(command).replace("\0", "")
        command = shlex.join(["bash", "-c", BOUNDED.format(printed=PRINTED, mark=mark), "bash", text])
        limits = {"cwd": self.folder, "timeout_sec": math.ceil(seconds), "user": self._theirs.config.agent.user}
        with _failing(f"{self._backend} failed"):
            try:
                found = await self._environment.exec(command, **limits)
            except (TimeoutError, RuntimeError) as error:
                if isinstance(error, TimeoutError) or "timed out" in str(error):
                    return Ran(text="", code=None, folder=self.folder, ended=f"[stopped after {seconds:g} seconds]")
                raise
        output, marked, last = (found.stdout or "").rpartition(f"\n{mark}\n")
        code, ended = found.return_code, ""
        if not marked:  # the command has replaced the shell, or printed too much
            output = last
            if code == 128 + signal.SIGPIPE:
                code, ended = None, f"[stopped because it printed more than {PRINTED >> 10} KB]"
        elif last.startswith("/") and last.endswith("\n"):  # whole
            self.folder = last.strip()
        return Ran(text=output + (found.stderr or ""), code=code, folder=self.folder, ended=ended)

    async def verify(self) -> float | None:
        """Raises EnvironmentFailure if harbor finds no reward."""
        with _failing(f"{self._backend} gave no reward"):
            from harbor.verifier.verifier import Verifier

            with self._environment.with_default_user(self._theirs.config.verifier.user):
                verifier = Verifier(task=self._theirs, trial_paths=self._paths, environment=self._environment)
                found = await asyncio.wait_for(verifier.verify(), self._task.verifier_s)
            return reward_in(json.dumps(found.rewards), "")

    async def stop(self) -> None:
        try:
            if self._environment is not None:
                await self._environment.stop(delete=True)
        except Exception as error:  # the episode is over
            logging.getLogger(__name__).warning("%s: harbor could not remove it (%s)", self._task.folder, _said(error))
        shutil.rmtree(self._place, ignore_errors=True)


@contextlib.contextmanager
def _failing(how: str, kind: type[Exception] = Exception) -> Iterator[None]:
    try:
        yield
    except kind as error:
        raise EnvironmentFailure(f"{how}: {_said(error)}") from None


def _said(error: BaseException) -> str:
    return one_line(cut_text(f"{type(error).__name__}: {error}", 400), 500)  # a failed build names its reason last
