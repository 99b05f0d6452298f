"""A disk that is full: an episode goes on or ends with a reason, and neither a file nor a process is left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from rla_screens.browser.drivers import new_folder

from rla.errors import UserError
from tests.browser.chromium import chromium

pytest.importorskip("playwright", reason="needs the browser extra")
pytestmark = pytest.mark.skipif(
    chromium() is None, reason="no Chromium on PATH: apt-get install chromium-headless-shell"
)
SMALL = str(1 << 16)  # bytes of the file system
REFUSED = ("UserError: the browser ", "UserError: no place ")  # no browser starts
# A headless browser needs little of the disk: with one that is full it may play to the end.
FULL = ("done: True", "EnvironmentFailure: the page ", *REFUSED)


def walls(folder: Path) -> list[str]:
    """A command line in front of another one: a small file system lies over the folder. Skips where there is none."""
    if shutil.which("bwrap") is None:
        pytest.skip("no bwrap on PATH: apt-get install bubblewrap")
    line = ["bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--size", SMALL, "--tmpfs", str(folder)]
    if subprocess.run([*line, "true"], capture_output=True).returncode:
        pytest.skip("bwrap may not mount a file system here")
    return line


def played(folder: Path, when: str, before: list[str]) -> dict[str, Any]:
    """What the program says of the episode and of what is left."""
    line = [*before, sys.executable, "-m", "screens_tests.integration.full_disk_episode", when]
    done = subprocess.run(
        line, env=os.environ | {"TMPDIR": str(folder)}, capture_output=True, text=True, timeout=180, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(("when", "endings"), [("full", FULL), ("filling", FULL), ("refused", REFUSED)])
def test_an_episode_on_a_full_disk_ends_and_leaves_nothing(tmp_path: Path, when: str, endings: tuple[str, ...]) -> None:
    found = played(tmp_path, when, [] if when == "refused" else walls(tmp_path))
    assert found["said"].startswith(endings), found["said"]
    assert (found["files"], found["processes"]) == ([], [])


def test_no_place_for_temporary_files_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(UserError, match=r"no place for the temporary files of a browser .*set TMPDIR"):
        new_folder()
