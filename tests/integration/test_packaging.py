"""The wheel: a working `rla` from any folder, with schemas and pipelines inside."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rla.store.manifest import MANIFEST

TOP = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel unpacked, as an installer leaves it."""
    pytest.importorskip("hatchling", reason="needs the dev extra")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=TOP, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("rla-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def call(site: Path, folder: Path, *arguments: str) -> str:
    """Run `python -m rla` in `folder`, from the unpacked wheel and not from the checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "rla", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_what_the_program_reads(site: Path) -> None:
    data = site / "rla/_data"
    for folder in ("schemas", "pipelines"):
        expected = {path.name for path in (TOP / folder).iterdir()}
        assert {path.name for path in (data / folder).iterdir()} == expected
    assert (data / "dvc.yaml").read_bytes() == (TOP / "dvc.yaml").read_bytes()


def test_the_wheel_has_the_licence_and_the_command(site: Path) -> None:
    (info,) = site.glob("rla-*.dist-info")
    assert "License-Expression: Apache-2.0" in (info / "METADATA").read_text()
    assert "rla = rla.__main__:main" in (info / "entry_points.txt").read_text()
    assert (info / "licenses/LICENSE").exists()


def test_a_stage_runs_from_an_empty_folder_with_packaged_params(site: Path, tmp_path: Path) -> None:
    text = call(site, tmp_path, "make-tasks", "--set", "tasks.train_scenes=2", "--set", "tasks.test_scenes=1")
    assert "runs/alfworld-tiny/0/pool" in text
    assert (tmp_path / "runs/alfworld-tiny/0/pool" / MANIFEST).exists()
    assert str(site) in call(site, tmp_path, "rollout", "--dry-run").splitlines()[0]
