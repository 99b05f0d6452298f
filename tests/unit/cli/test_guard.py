"""What an error becomes at the edge: one line and exit code 2 where somebody can mend it, else a traceback."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from importlib import import_module
from pathlib import Path

import pytest
import typer
from safetensors import SafetensorError

from rla.cli.guard import LONGEST_ERROR, guard, system_refusal
from rla.envs.observation import EnvironmentFailure
from rla.errors import UserError


def refusing(error: BaseException) -> None:
    raise error


def said(error: BaseException, capfd: pytest.CaptureFixture[str]) -> str:
    """The one line that an error becomes."""
    with pytest.raises(typer.Exit) as end:
        guard(lambda: refusing(error))
    assert end.value.exit_code == 2
    (line,) = capfd.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EROFS, "Read-only file system", "runs/x"), "runs/x: the system refuses it (Read-only file"),
        (PermissionError(errno.EACCES, "Permission denied", Path("runs")), "runs: the system refuses it (Permission"),
        (OSError(errno.ENOSPC, "No space left on device"), "the system refuses it (No space left on device)"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "(No space left on device)"),
        (RuntimeError("cannot write [Errno 122] there"), f"({os.strerror(errno.EDQUOT)})"),
        (shutil.Error([("a", "runs/b", "[Errno 28] No space left on device")]), "runs/b: [Errno 28] No space left"),
    ],
)
def test_what_the_system_refuses_is_one_line(error: Exception, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    line = said(error, capfd)
    assert line.startswith("error: ") and message in line and "call the command again" in line


@pytest.mark.parametrize(
    "error", [KeyError("x"), FileNotFoundError(errno.ENOENT, "No such file", "x"), OSError("odd"), RuntimeError("28")]
)
def test_a_defect_keeps_its_traceback(error: Exception) -> None:
    assert system_refusal(error) is None
    with pytest.raises(type(error)):
        guard(lambda: refusing(error))


def test_code_that_ends_the_program_has_not_succeeded(capfd: pytest.CaptureFixture[str]) -> None:
    assert "ended the program by sys.exit(0)" in said(SystemExit(0), capfd)


def test_an_environment_that_fails_outside_of_an_episode_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    line = said(EnvironmentFailure("the page is gone"), capfd)
    assert "the environment failed: the page is gone; call the command again" in line and "envs --check" in line


def test_an_error_that_quotes_a_hostile_text_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert said(UserError("unknown key a\nb\x1b[2J\u202e\ud800"), capfd) == (
        "error: unknown key a b\\x1b[2J\\u202e\\ud800"
    )
    assert len(said(UserError("x" * 10**6), capfd)) < LONGEST_ERROR + 20


def test_a_rename_that_nfs_answers_with_enoent_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    error = FileNotFoundError(errno.ENOENT, "No such file or directory", "r/.x.tmp", None, "r/x")
    assert said(error, capfd).startswith("error: r/x: the system refuses it (No such file or directory)")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_that_an_import_makes_another_error_of_is_an_interruption(
    number: signal.Signals,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "slow_library.py").write_text(
        "import signal\n"
        "try:\n"
        f"    signal.raise_signal({int(number)})\n"
        "except BaseException as error:\n"
        "    raise ImportError('initialization failed') from error\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(typer.Exit) as end:
        guard(lambda: import_module("slow_library"))
    assert end.value.exit_code == code
    assert capfd.readouterr().err.splitlines() == ["interrupted: the same command goes on where this one stopped"]
