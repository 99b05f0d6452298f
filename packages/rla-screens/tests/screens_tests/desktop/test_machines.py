"""Leases of processes that are gone, containers by a command that stands in for docker, metrics in another process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from rla_screens.desktop import leases
from rla_screens.desktop.client import GuestClient, GuestRefusal
from rla_screens.desktop.docker import DockerMachine, remove_orphans, run_arguments
from rla_screens.desktop.getting import GETTERS
from rla_screens.desktop.importing import import_desktop_tasks
from rla_screens.desktop.machine_pool import MachinePool
from rla_screens.desktop.machines import GuestAddress, MachineLost
from rla_screens.desktop.official import OfficialFailure, OfficialMetrics
from rla_screens.desktop.params import DesktopParams
from rla_screens.desktop.scenarios import scenario_of
from rla_screens.screens.starts import process_start

from rla.errors import UserError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return leases.leases_folder()


def test_what_a_process_left_is_ended_and_what_a_living_one_has_stays(folder: Path) -> None:
    left = subprocess.Popen(["sleep", "60"])
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    orphan = folder / f"{leases.this_place()}-{int(gone.stdout)}-123-0"
    orphan.mkdir()
    note = {"owner": [int(gone.stdout), 123], "machine": [left.pid, process_start(left.pid)]}
    (orphan / "lease.json").write_text(json.dumps(note))
    own = leases.new_lease()
    assert leases.sweep() == 1
    assert left.wait(10) == -9 and not orphan.exists() and own.folder.exists()


def test_a_process_of_the_same_number_that_began_later_is_left_alone(folder: Path) -> None:
    other = subprocess.Popen(["sleep", "60"])
    orphan = folder / f"{leases.this_place()}-999999-123-0"
    orphan.mkdir()
    (orphan / "lease.json").write_text(json.dumps({"owner": [999999, 123], "machine": [other.pid, 1]}))
    assert leases.sweep() == 1 and other.poll() is None
    other.kill()
    other.wait()


@pytest.mark.parametrize("place", ["0badc0de", leases.UNKNOWN])
def test_what_another_namespace_of_processes_has_is_left_alone(folder: Path, place: str) -> None:
    """Its process of that number may well live there."""
    other = folder / f"{place}-999999-123-0"
    other.mkdir()
    assert leases.sweep() == 0 and other.exists()


FAKE = """#!/bin/sh
echo "$@" >> {log}
case $1 in
  port) echo 127.0.0.1:9 ;;
  ps) printf 'old {place}-999999-5\\nnew {mark}\\nforeign 0badc0de-999999-5\\nodd 999999-5\\nodder\\n' ;;
esac
"""


def test_containers_are_started_removed_and_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, own = tmp_path / "log", leases.this_process()
    fake = tmp_path / "docker"
    fake.write_text(FAKE.format(log=log, place=own.place, mark=own.mark))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    params = DesktopParams(machine="docker", image="img", docker=("--device=/dev/kvm",), start_s=0.1)
    with pytest.raises(MachineLost, match="does not answer"):
        asyncio.run(DockerMachine(params).start())
    assert asyncio.run(remove_orphans()) == 1
    lines = log.read_text().splitlines()
    assert lines[0].startswith("run --detach --rm --name rla-desktop-") and lines[0].endswith("--device=/dev/kvm img")
    assert [line.split()[0] for line in lines] == ["run", "port", "rm", "ps", "rm"] and lines[-1] == "rm --force old"
    assert {"127.0.0.1::5000", f"rla-owner={own.mark}"} <= set(run_arguments(params, "x"))


def test_a_docker_without_a_daemon_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\necho no daemon >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UserError, match="no daemon"):
        asyncio.run(MachinePool(DesktopParams(machine="docker", image="img")).take())


WORKING = """
def fails(result):
    raise ValueError('no')

def same(result, expected, **options):
    return open(result).read() == expected

def tables(result, expected):
    import os
    named = os.path.basename(result) == os.path.basename(expected) == 'book.xlsx' and result != expected
    return named and os.path.exists(result.replace('.xlsx', '-Sheet1.csv'))
"""


@pytest.fixture
def osworld_python(tmp_path: Path) -> str:
    """A Python with a `desktop_env` of `WORKING`."""
    package = tmp_path / "site" / "desktop_env" / "evaluators"
    package.mkdir(parents=True)
    for place in (package.parent / "__init__.py", package / "__init__.py"):
        place.write_text("")
    (package / "metrics.py").write_text(WORKING)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/site exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_metrics_of_osworld_run_in_a_process_of_their_own(osworld_python: str) -> None:
    async def asked() -> None:
        metrics = OfficialMetrics(osworld_python)
        assert {"same", "fails"} <= await metrics.known()
        assert await metrics.score("same", b"x", "x", {}, has_expected=True) == 1.0
        with pytest.raises(OfficialFailure, match="ValueError: no"):
            await metrics.score("fails", b"x", None, {}, has_expected=False)
        await metrics.close()

    asyncio.run(asked())


def test_metrics_of_osworld_get_files_by_their_names_in_a_folder_for_each_side(
    osworld_python: str, tmp_path: Path
) -> None:
    """The stub gives 0 for a wrong extension, as OSWorld's `compare_table` and others do."""
    (tmp_path / "book.xlsx").write_bytes(b"book")
    (tmp_path / "book-Sheet1.csv").write_bytes(b"1,2")
    own = DesktopParams(files=str(tmp_path))
    several = {"type": "cloud_file", "multi": True, "path": ["https://a.b/book.xlsx", "https://a.b/book-Sheet1.csv"]}
    plain = {"type": "cloud_file", "path": "https://a.b/book.xlsx?x=1"}
    renamed = plain | {"dest": "../../other.docx"}

    async def asked() -> list[float]:
        metrics, client = OfficialMetrics(osworld_python), GuestClient(GuestAddress(url="http://x"), longest_s=1)
        scores = []
        for result, expected in ((several, plain), (plain, plain), (several, renamed)):
            found, wanted = [await GETTERS["cloud_file"](each, client, own) for each in (result, expected)]
            scores.append(await metrics.score("tables", found, wanted, {}, has_expected=True))
        await metrics.close()
        return scores

    assert asyncio.run(asked()) == [1.0, 0.0, 0.0]


def test_a_python_without_desktop_env_is_refused() -> None:
    with pytest.raises(UserError, match="has no desktop_env"):
        asyncio.run(OfficialMetrics(sys.executable).known())


def test_tasks_whose_metric_osworld_does_not_have_are_left_out_when_they_are_made(
    osworld_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`exact_match` is ours, too, but OSWorld's package comes first if there is one."""
    (tmp_path / "tasks" / "os").mkdir(parents=True)
    look = {"type": "vm_command_line", "command": "x"}
    for func in ("same", "diff_text", "exact_match", "check_lines"):
        rules: object = {"lines": ["x"]} if func == "check_lines" else {"expected": "x"}
        asked = {"func": func, "result": look, "expected": {"type": "rule", "rules": rules}}
        found: object = {"id": func, "instruction": "Do it.", "config": [], "evaluator": asked}
        (tmp_path / "tasks" / "os" / f"{func}.json").write_text(json.dumps(found))
    begun, started = list[str](), OfficialMetrics._started

    async def counted(self: OfficialMetrics) -> asyncio.subprocess.Process:
        begun.append("asked")
        return await started(self)

    monkeypatch.setattr(OfficialMetrics, "_started", counted)

    def made(own: DesktopParams) -> tuple[set[str], list[str]]:
        told: list[str] = []
        tasks = import_desktop_tasks(
            str(tmp_path / "tasks"), own, split="train", held_out=None, limit=None, tell=told.append
        )
        return {scenario_of(task).id for task in tasks}, told

    left_out = "os/{0}: left out, not supported: metric '{0}', which the desktop_env of env.own.osworld_python"
    ids, told = made(DesktopParams(osworld_python=osworld_python))
    assert ids == {"same", "check_lines"} and len(begun) == 1
    assert len(told) == 3 and told[0].startswith(left_out.format("diff_text"))
    assert told[1].startswith(left_out.format("exact_match"))
    with pytest.raises(UserError, match=r"env\.own\.osworld_python: /nowhere/python does not run"):
        made(DesktopParams(osworld_python="/nowhere/python"))


@pytest.mark.parametrize(("code", "refused"), [(0, False), (1, True)])
def test_a_program_of_pyautogui_that_fails_is_refused(code: int, refused: bool) -> None:
    """A guest that knows OSWorld's protocol alone answers 200 whatever has become of the program."""

    async def ran(request: web.Request) -> web.Response:
        return web.json_response({"status": "success", "output": "", "error": "no DISPLAY", "returncode": code})

    async def worked() -> None:
        guest = web.Application()
        guest.router.add_post("/setup/execute", ran)
        async with TestServer(guest) as server:
            client = GuestClient(GuestAddress(url=str(server.make_url("")).rstrip("/")), longest_s=10)
            expected = pytest.raises(GuestRefusal, match="no DISPLAY") if refused else nullcontext()
            with expected:
                await client.do([{"motion": "move", "at": [1, 2]}])
            await client.close()

    asyncio.run(worked())
