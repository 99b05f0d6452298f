"""What a box has of an interpreter: the standard library, wherever it is installed, and nothing that lies beside it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rla_programs.execution import ExitStatus, Job
from rla_programs.execution.bubblewrap import bubblewrap
from rla_programs.execution.interpreter import interpreter_of

from programs_tests.execution.sandboxes import AS_USER, PATIENT, as_user, shared

TOP = Path(__file__).parents[5]
NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
LEFT_OUT = ("site-packages", "dist-packages", "test", "idlelib", "lib2to3", "ensurepip", "tkinter", "config-*")
SEARCH = """
import os, sys, tempfile
import bz2, ctypes, hashlib, lzma, sqlite3, ssl, uuid, zlib
found = []
for path, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(path, name) not in ("/proc", "/dev")]
    if path.endswith("-packages"):
        sys.path.insert(0, path)
        found += folders + files
try:
    from rla_programs.coding.builtin import drawn_problems
    found.append("the solutions")
except ImportError:
    pass
with tempfile.TemporaryFile() as file:
    file.write(b"x")
print(os.path.realpath(sys.executable), found, os.listdir("."))
"""


def linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


@pytest.fixture(scope="module", params=["/tmp", "/var/tmp"])
def installed(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The program of an interpreter below the folder, that has `rla` in its own site-packages."""
    with tempfile.TemporaryDirectory(dir=request.param) as folder:
        Path(folder).chmod(0o755)
        program, base = Path(folder, "bin", NAME), Path(os.path.realpath(sys._base_executable))  # type: ignore[attr-defined]
        library = Path(folder, "lib", NAME)
        shutil.copytree(
            Path(os.__file__).parent, library, copy_function=linked, ignore=shutil.ignore_patterns(*LEFT_OUT)
        )
        for shared in (base.parents[1] / "lib").glob("libpython*.so*"):
            shutil.copy2(shared, library.parent)
        program.parent.mkdir()
        shutil.copy2(base, program)
        for ours in (TOP / "rla", TOP / "packages/rla-programs/rla_programs"):
            place = library / "site-packages" / ours.name
            shutil.copytree(ours, place, ignore=shutil.ignore_patterns("__pycache__"))
        yield program


@pytest.mark.parametrize("backend", ["bubblewrap", AS_USER])
def test_an_interpreter_that_has_rla_installed_shows_no_solution(
    installed: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the interpreter lies below the folder that programs write to."""
    shared(backend)  # skips where no interpreter runs in a box
    monkeypatch.setattr(sys, "_base_executable", str(installed))
    monkeypatch.setattr(sys, "base_prefix", str(installed.parents[1]))

    async def main() -> None:
        sandbox = as_user(1) if backend == AS_USER else bubblewrap(workers=1)
        (found,) = await sandbox.run(Job(source=SEARCH, stdin=("",), limits=PATIENT))
        await sandbox.close()
        assert (found.status, found.stdout) == (ExitStatus.OK, f"{installed} [] []\n"), found

    asyncio.run(main())


def test_libraries_are_bound_by_the_names_that_the_loader_looks_for(tmp_path: Path) -> None:
    """Of the system their folders, of other places each file; of packages and of `rla` itself nothing."""
    tmp_path = tmp_path.resolve()
    (tmp_path / "lib/python3/site-packages").mkdir(parents=True)
    (tmp_path / "lib/libreal.so.1.2").touch()
    (tmp_path / "lib/libreal.so.1").symlink_to("libreal.so.1.2")
    (tmp_path / "bin").symlink_to("lib")
    names = ["", "linux-vdso.so.1", f"{tmp_path}/bin/../lib/libreal.so.1", "/usr/lib/somewhere/libz.so.1"]
    found = interpreter_of(f"{tmp_path}/bin/python3", [f"{tmp_path}/lib/python3"] * 2, names)
    assert found.folders == (f"{tmp_path}/lib/python3", "/usr/lib/somewhere")
    assert found.files == (f"{tmp_path}/bin/python3", f"{tmp_path}/lib/libreal.so.1")
    assert found.hidden == (f"{tmp_path}/lib/python3/site-packages",)
    package = TOP / "packages/rla-programs/rla_programs"
    below = interpreter_of("/usr/bin/python3", [str(TOP), str(package)], [])
    assert below.folders == (str(TOP),) and str(package) in below.hidden
