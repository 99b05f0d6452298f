"""The wheel: a working `rla` from any folder, with schemas and pipelines inside."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from rla.store.slices import MANIFEST
from tests.integration.fresh import link_requirements
from tests.integration.pipelines import PARAMS, environment

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


@pytest.fixture(scope="module")
def alone(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel and the distributions that it requires, as installed here, and no other."""
    folder = tmp_path_factory.mktemp("alone")
    venv.create(folder, symlinks=True)
    (place,) = folder.glob("lib/python*/site-packages")
    for entry in site.iterdir():
        (place / entry.name).symlink_to(entry)
    link_requirements("rla", place)
    return folder


def test_the_core_turns_an_iteration_without_any_package(alone: Path, tmp_path: Path) -> None:
    def call(*words: str, folder: Path) -> str:
        kept = {key: value for key, value in environment().items() if key not in ("PYTHONPATH", "ALFWORLD_DATA")}
        path = f"{alone / 'bin'}{os.pathsep}{kept['PATH']}"
        command = [str(alone / "bin/python"), "-m", "rla", *words]
        done = subprocess.run(
            command, cwd=folder, env=kept | {"PATH": path}, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert call("envs", "--json", folder=tmp_path).count('"name"') == 1
    call("init", "x", folder=tmp_path)
    (tmp_path / "x/params.yaml").write_text(PARAMS)
    call("run", "--iterations", "1", "--run", "runs/t", folder=tmp_path / "x")
    assert (tmp_path / "x/runs/t/1/policy/checkpoint.json").exists()
    assert (tmp_path / "x/runs/t/report/report.json").exists()
