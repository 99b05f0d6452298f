"""A shell in a box, as root builds it and as other users do: what stays, what ends, and what cannot be replaced."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from rla_programs.execution import Limits
from rla_programs.execution.interpreter import base_interpreter
from rla_programs.execution.local import LocalSandbox
from rla_programs.execution.shell import Shell, ShellBoxes, shell_boxes

from programs_tests.execution.sandboxes import descendants, gone
from rla.errors import UserError

LIMITS = Limits(wall_s=60.0, cpu_s=60.0, processes=64, file_mb=32)


@cache
def boxes(kind: str) -> LocalSandbox | str:
    """The sandbox of this kind, or why it does not work on this machine."""
    try:
        if kind == "as root or user":
            return shell_boxes()
        launch = ShellBoxes(shutil.which("bwrap") or "bwrap", as_root=False, numbering=True)
        sandbox = LocalSandbox(launch, workers=1, bounds_tasks=True)
        return sandbox.refusal() or sandbox
    except UserError as error:
        return str(error)


@pytest.fixture(params=["as root or user", "with a user namespace"])
def shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    found = boxes(request.param)
    if isinstance(found, str):
        pytest.skip(found)
    before = descendants()
    made = Shell(found, LIMITS)
    yield made
    made.close()
    assert gone(descendants() - before)


def said(shell: Shell, command: str, folder: str = "/tmp", seconds: float = 20.0) -> str:
    ran = shell.run(command, folder, {}, seconds=seconds)
    return ran.text.strip() or ran.ended or f"exit code {ran.code}"


def test_files_stay_and_processes_end_with_their_command(shell: Shell) -> None:
    assert said(shell, "mkdir -p /app; cd /app; echo kept > file; nohup setsid sleep 99 >/dev/null & pwd") == "/app"
    assert said(shell, "cat /app/file; pgrep -c sleep") == "kept\n0"
    assert said(shell, "nonsense") == "bash: line 1: nonsense: command not found"
    assert said(shell, '# a comment\necho $# "$*" $0') == "0  bash"
    ran = shell.run("cd /app && false", "/tmp", {"A": "b"}, seconds=20.0)
    assert (ran.code, ran.folder) == (1, "/app")
    assert shell.run("cd /nowhere; exit 3", "/gone", {}, seconds=20.0).folder == "/"


def test_it_has_python_pytest_and_the_usual_programs_and_no_network(shell: Shell) -> None:
    assert said(shell, "python3 -c 'import pytest; print(1 + 1)' && pytest --version | cut -c1-6") == "2\npytest"
    assert said(shell, "whoami; id -un; echo a | sed s/a/b/ | awk '{print $1}'") == "root\nroot\nb"
    assert "Operation not permitted" in said(shell, "python3 -c 'import socket; socket.socket()'")
    assert said(shell, "cat /etc/shadow /home /root/.bashrc").count("No such file or directory") == 3


def test_placed_files_replace_whatever_is_there(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "test.sh").write_text("echo fresh")
    said(shell, "mkdir -p /tests/old /logs /x; touch /x/reward; ln -s /x /logs/verifier; chmod 000 /tests")
    fresh = ("/tests", "/logs/verifier", "/pytest.ini")
    files = [(tmp_path / "test.sh", "/tests/test.sh")]
    assert shell.place(files, folders=["/logs/verifier"], fresh=fresh, mode=0o755) == ""
    assert said(shell, "ls /tests /logs/verifier; /tests/test.sh") == "/logs/verifier:\n\n/tests:\ntest.sh\nfresh"
    assert shell.place([(tmp_path / "test.sh", "/usr/x")]).endswith("Read-only file system: '/usr/x'")
    said(shell, "cat /dev/zero > /full 2>/dev/null")
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    assert "No space left on device" in shell.place([(tmp_path / "large", "/y")])


def test_texts_are_files_only(shell: Shell) -> None:
    said(shell, "cd /tmp; echo text > a; ln -s a b; mkfifo c; mkdir d; head -c 100000 /dev/zero > e")
    first, link, pipe, folder, long, absent = shell.texts("/tmp/a", "/tmp/b", "/tmp/c", "/tmp/d", "/tmp/e", "/tmp/f")
    assert (first, link, pipe, folder, absent) == ("text\n", "", "", "", "") and len(long) == 1 << 16


@pytest.mark.parametrize(
    "path", ["/usr/bin/python3", "/bin/bash", "/box/bin/pytest", "/box/packages/pytest", "/etc/passwd"]
)
def test_programs_cannot_be_replaced(shell: Shell, path: str) -> None:
    top = "/" + path.split("/")[1]
    for attack in (f"mv {path} /tmp/x", f"rm -rf {path}", f"mv {top} /tmp/x", f"echo > {path}", f"mkdir {top}/new"):
        assert said(shell, f"({attack}) 2>/dev/null || echo refused") == "refused"
    assert said(shell, f"test -s {path}") == "exit code 0"


def test_an_interpreter_outside_of_usr_cannot_be_moved(shell: Shell) -> None:
    python = base_interpreter()
    tops = {path.split("/")[1] for path in (*python.folders, *python.files) if not path.startswith("/usr/")} - {"lib"}
    for top in sorted(tops):
        assert said(shell, f"mv /{top} /tmp/x 2>/dev/null || mv /{top}/* /tmp 2>/dev/null") == "exit code 1"
    assert said(shell, "echo on") == "on"


def test_a_command_is_stopped_by_its_time_and_output(shell: Shell) -> None:
    assert said(shell, "sleep 99", seconds=1.0) == "[stopped after 1 seconds]"
    ran = shell.run("yes", "/tmp", {}, seconds=20.0)
    assert ran.code is None and ran.ended == "[stopped because it printed more than 1024 KB]"
    assert said(shell, "echo on") == "on"
