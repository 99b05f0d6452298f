"""Programs that ruin or mark the folder they work in: neither the sandbox nor the next test notices."""

from __future__ import annotations

import os
import tempfile

import pytest
from rla_programs.execution import ExitStatus, Limits, cgroups

from programs_tests.execution.sandboxes import AS_USER, LOCAL, results

CLOSING = {
    "closed": "import os\nos.chmod(os.getcwd(), 0)",
    "removed": "import os, shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)",
    "deep": "import os\nfor _ in range(60): os.mkdir('d' * 200); os.chdir('d' * 200)\nos.chmod('.', 0)",
    "deeper": "import os\nfor _ in range(2000): os.mkdir('d'); os.chdir('d')",
}


@pytest.mark.parametrize("name", CLOSING)
@pytest.mark.parametrize("backend", (*LOCAL, AS_USER))
def test_a_program_that_ruins_its_folder_is_no_fault_of_the_sandbox(
    backend: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is left, and the next test of the program has a folder as ever."""
    source = f"import os\nassert os.listdir() == []\n{CLOSING[name]}\nprint('done')"
    with tempfile.TemporaryDirectory() as folder:  # tests beside this one leave their boxes in the common folder
        os.chmod(folder, 0o755)  # another user's programs pass through it
        monkeypatch.setattr(tempfile, "tempdir", folder)
        for found in results(backend, source, "", ""):
            assert (found.status, found.stdout) in ((ExitStatus.OK, "done\n"), (ExitStatus.NONZERO, "")), found
        assert not os.listdir(folder)


@pytest.mark.parametrize("backend", ("bubblewrap", AS_USER))
def test_the_number_of_files_is_limited_and_no_capability_to_change_that_is_left(backend: str) -> None:
    """An empty file takes none of the folder's size, but memory of the kernel."""
    source = """
import ctypes, os
number = 0
try:
    while True:
        os.close(os.open(f"f{number}", os.O_CREAT))
        number += 1
except OSError as error:
    print(number, error.strerror)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print({status[name].strip("0\\t\\n") for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")})
"""
    for found in results(backend, source, "", ""):
        assert found.stdout == "4095 No space left on device\n{''}\n", found


@pytest.mark.parametrize("backend", ("bubblewrap", AS_USER))
def test_memory_that_only_a_cgroup_counts_is_bounded(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = cgroups.delegated()
    if base is None:
        pytest.skip("no cgroup v2 is delegated to this process")
    monkeypatch.setattr(cgroups, "BESIDE_MB", -200)  # less than the address space that one process may have
    source = "data = bytearray(int(input()) << 20)\nprint(len(data) >> 20)"
    found = results(backend, source, "1", "150", "1", limits=Limits(wall_s=60.0, memory_mb=256))
    assert [run.status for run in found] == [ExitStatus.OK, ExitStatus.MEMORY, ExitStatus.OK], found
    assert not list(base.glob(f"{cgroups.NAME}*"))


@pytest.mark.parametrize("backend", (*LOCAL, AS_USER))
def test_no_test_leaves_a_mark_on_the_folder_for_the_next(backend: str) -> None:
    source = """
import os
print(int(os.stat(".").st_mtime) == 5, oct(os.stat(".").st_mode))
open("x", "w").close()
os.remove("x")
try:
    os.utime(".", (5, 5))
    os.chmod(".", 0o711)
except OSError:
    pass
"""
    first, second = results(backend, source, "", "")
    assert first.stdout == second.stdout and first.stdout.startswith("False 0o4")
