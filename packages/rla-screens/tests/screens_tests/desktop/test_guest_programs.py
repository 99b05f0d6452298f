"""Programs and files of a machine that whoever works there may have prepared for the one who looks."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rla_screens.desktop.client import GuestClient, GuestRefusal
from rla_screens.desktop.getting import GETTERS
from rla_screens.desktop.guest.answers import GuestRequest, answer_to
from rla_screens.desktop.guest.hands import Hands
from rla_screens.desktop.guest.programs import (
    DEEPEST,
    MOST_ENTRIES,
    MOST_FILE,
    MOST_OUTPUT,
    found_file,
    run_program,
    tree_of,
    write_file,
)
from rla_screens.desktop.machines import GuestAddress
from rla_screens.desktop.params import DesktopParams


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(60 << 30)


def growing(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MOST_FILE + 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.symlink_to("/dev/zero"),
        sparse,
        growing,
        os.mkfifo,
        lambda path: path.mkdir(),
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to("/proc/self/mem"),
        lambda path: None,
    ],
)
def test_what_is_not_a_regular_file_of_a_bounded_size_is_not_found(make: Callable[[Path], Any], tmp_path: Path) -> None:
    make(tmp_path / "result.txt")
    with pytest.raises(FileNotFoundError, match=r"result\.txt"):
        found_file(str(tmp_path / "result.txt"))


def test_a_regular_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * (3 << 20))
    assert len(found_file(str(tmp_path / "a"))) == 3 << 20


def test_a_pipe_in_the_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    write_file(str(tmp_path / "a"), b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


def test_of_what_a_program_writes_the_beginning_is_kept() -> None:
    code, output, error = run_program(["sh", "-c", "echo first; head -c 40000000 /dev/zero; echo oh >&2; exit 3"])
    assert (code, output[:6], len(output), error) == (3, "first\n", MOST_OUTPUT, "oh\n")


def test_what_a_program_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    left = "sleep 60 & echo $! > pid; echo done"
    assert run_program(["sh", "-c", f"cd {tmp_path}; {left}"], longest_s=30)[1] == "done\n"
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_a_program_that_does_not_end_is_ended() -> None:
    with pytest.raises(TimeoutError, match=r"yes took longer than 0\.2 s"):
        run_program(["yes"], longest_s=0.2)


FORGED = "import os; print('forged'); os._exit(0)\n"


@pytest.mark.parametrize(
    "command",
    [
        ["python3", "-c", "import json; print(json.dumps('true'))"],
        ["python3", "-m", "json.tool", "--no-ensure-ascii", "true.json"],
        ["env", "A=1", "python3", "-c", "import json; print(json.dumps('true'))"],
        ["sh", "-c", "python3 -c 'import json; print(json.dumps(\"true\"))'"],
        ["python3", "-uc", "import json; print(json.dumps('true'))"],
        ["python3", "-X", "utf8", "-cimport json; print(json.dumps('true'))"],
        ["python3", "-W", "ignore", "-m", "json.tool", "true.json"],
        ["sh", "-c", "cat true.json | python3 -u -m json.tool 2>&1"],
        ["timeout", "9", "python3", "-m", "json.tool", "true.json"],
        ["sh", "-c", "python3 - <<E\nimport json; print(json.dumps('true'))\nE"],
        ["sh", "-c", "echo \"import json; print(json.dumps('true'))\" | python3"],
        ["sh", "-c", "x=$(python3 -Xutf8 -Wignore -c 'import json; print(json.dumps(\"true\"))'); echo $x"],
        ["sh", "-c", "cd . && python3 -s -c 'import json; print(json.dumps(\"true\"))'"],
    ],
)
def test_files_of_the_home_do_not_speak_for_a_program_on_the_command_line(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(sys.executable).resolve().parent
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    site = tmp_path / f".local/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    site.mkdir(parents=True)
    for place in (site / "usercustomize.py", site / "sitecustomize.py", tmp_path / "json.py", tmp_path / "site.py"):
        place.write_text(FORGED)
    (site / "own.pth").write_text("import os; print('forged'); os._exit(0)\n")
    (tmp_path / "true.json").write_text('"true"')
    assert run_program(command)[1] == '"true"\n'


def test_a_script_finds_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("told = 'mine'\n")
    (tmp_path / "script.py").write_text("import beside\nprint(beside.told)\n")
    for command in (["python3", str(tmp_path / "script.py")], ["sh", "-c", f"cd {tmp_path}; python3 script.py"]):
        assert run_program(command)[1] == "mine\n"


def test_a_program_on_the_command_line_is_main_and_has_its_arguments() -> None:
    code = "from __future__ import annotations\nimport sys\nprint(__name__, sys.argv)\nsys.exit(7)"
    assert run_program([sys.executable, "-c", code, "a", "b"]) == (7, "__main__ ['-c', 'a', 'b']\n", "")


class Refusing(GuestClient):
    """A machine that answers every question with a status."""

    def __init__(self, status: int) -> None:
        super().__init__(GuestAddress(url="http://x"), longest_s=1)
        self.status = status

    async def _asked(self, method: str, path: str, body: Any = None, *, most: int = 0) -> bytes:
        raise GuestRefusal(self.status, "no")


@pytest.mark.parametrize(
    ("looked", "nothing", "status"),
    [
        ({"type": "list_directory", "path": "~/gone"}, 400, 500),
        ({"type": "vm_file", "path": "~/gone"}, 404, 500),
        ({"type": "vm_command_line", "command": "cat pipe"}, 504, 404),
        ({"type": "vm_command_error", "command": "cat pipe"}, 504, 500),
    ],
)
def test_what_an_agent_has_put_out_of_reach_counts_as_missing(looked: Any, nothing: int, status: int) -> None:
    """It would escape a loss otherwise. A machine that fails is still no loss."""
    look, own = GETTERS[looked["type"]], DesktopParams()
    assert asyncio.run(look(looked, Refusing(nothing), own)) is None
    with pytest.raises(GuestRefusal):
        asyncio.run(look(looked, Refusing(status), own))


def test_a_program_that_does_not_end_has_a_status_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rla_screens.desktop.guest.programs.run_program.__kwdefaults__", {"longest_s": 0.1})
    request = GuestRequest(method="POST", path="/setup/execute", values={"command": ["sleep", "9"]})
    assert answer_to(request, Hands.__new__(Hands)).status == 504


def test_nobody_else_can_write_into_the_answer_of_a_program() -> None:
    _, output, error = run_program(["sh", "-c", "echo forged > /proc/self/fd/1; echo true"])
    assert output == "true\n" and "/proc/self/fd/1" in error


def test_a_folder_is_listed_within_bounds(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / str(number)).touch()
    assert len(tree_of(tmp_path, left=[20])["children"]) == 20 < MOST_ENTRIES
    deep = tmp_path / "deep"
    deep.joinpath(*["d"] * (DEEPEST + 9)).mkdir(parents=True)
    found, depth = tree_of(deep), 0
    while found.get("children"):
        found, depth = found["children"][0], depth + 1
    assert depth == DEEPEST + 1
