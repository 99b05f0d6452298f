"""A small portion of `make attack`, and proofs that it sees what it looks for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.attack import attacking
from tests.attack.areas import HANGS, Needs, Try
from tests.attack.calls import Ended, fault
from tests.attack.crew import Queues, outcomes
from tests.attack.kills import spread
from tests.attack.small_run import World, difference

TOP = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None,
    reason="the attack needs Linux and a compiler",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("attack") / "file_operations.so"
    source = TOP / "tests/attack/file_operations.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", made, source, "-ldl"], check=True)
    return made


WRITER = """
import ctypes, os, sys
import pyarrow as pa, pyarrow.parquet as pq
root, target, mode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
log = os.open(sys.argv[4], os.O_CREAT | os.O_WRONLY)
number = ctypes.c_long
ctypes.CDLL(None).attack_begin(root.encode(), number(target), number(mode), number(log))
os.chdir(root)
os.mkdir("shard")
with open("shard/.text.tmp", "w") as file:
    file.write("0123456789")
os.replace("shard/.text.tmp", "shard/text")
pq.write_table(pa.table({"a": [1, 2, 3]}), "shard/part")
open("../beside", "w").close()
"""


def written(library: Path, folder: Path, target: int, mode: int = 0) -> tuple[int, str, list[str]]:
    """Exit code, errors and the operations that were seen."""
    (folder / "root").mkdir()
    words = [str(folder / "root"), str(target), str(mode), str(folder / "log")]
    done = subprocess.run(
        [sys.executable, "-c", WRITER, *words],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
    )
    seen = [line.rsplit("\t", 1)[0].replace("\t", " ") for line in (folder / "log").read_text().splitlines()]
    return done.returncode, done.stderr, seen


def test_operations_of_python_and_of_libraries_are_seen_in_order(library: Path, tmp_path: Path) -> None:
    code, said, seen = written(library, tmp_path, 0)
    assert (code, said) == (0, "")
    own = ["mkdir /shard", "open /shard/.text.tmp", "write /shard/.text.tmp", "rename /shard/text", "open /shard/part"]
    assert seen[:5] == own
    assert (
        seen[5:] == ["write /shard/part"] * len(seen[5:]) != []
    )  # by pyarrow; what lies beside the folder is not seen


def test_a_process_dies_before_its_target_or_in_the_middle_of_it(library: Path, tmp_path: Path) -> None:
    for name, target, mode, text in (("before", 3, 0, ""), ("torn", 3, 1, "01234"), ("after", 4, 0, "0123456789")):
        (tmp_path / name).mkdir()
        code, _, _ = written(library, tmp_path / name, target, mode)
        assert code == -9
        assert (tmp_path / name / "root/shard/.text.tmp").read_text() == text
        assert not (tmp_path / name / "root/shard/text").exists()


def test_a_disk_is_full_from_its_target_on(library: Path, tmp_path: Path) -> None:
    code, said, seen = written(library, tmp_path, 5, 2)
    assert code == 1 and "No space left on device" in said
    assert "open /shard/part" in seen and not (tmp_path / "root/shard/part").exists()
    assert (tmp_path / "root/shard/text").read_text() == "0123456789"


def test_what_is_lost_different_or_left_over_is_told_apart() -> None:
    expected = {"r/a": "1", "r/b": "1", "r/thesis.txt": "1"}
    assert difference(expected, expected) is None
    found = difference(expected, {"r/b": "2", "r/.c.tmp": "1"})
    assert found == "lost of the user: r/thesis.txt; lost: r/a, r/thesis.txt; differs: r/b; left over: r/.c.tmp"


@pytest.mark.parametrize(
    ("code", "said", "wrong"),
    [
        (0, "done\n", None),
        (2, "a note\nerror: the file is not there; make it\n", None),
        (2, "error: the file\nis not there\n", "an error of several lines"),
        (2, "nothing\n", "without an error"),
        (1, "", "exit code 1"),
        (2, "Traceback (most recent call last):\nKeyError: 1\n", "traceback: KeyError: 1"),
        (124, "", "hangs"),
    ],
)
def test_an_end_is_success_or_one_error_in_one_line(code: int, said: str, wrong: str | None) -> None:
    found = fault(Ended(code=code, said=said, seconds=1.0))
    assert found is None if wrong is None else found is not None and wrong in found


def test_a_portion_holds_and_the_next_call_has_nothing_left_to_try(tmp_path: Path) -> None:
    areas = ("kill -9", "edits")
    call = [sys.executable, "-m", "tests.attack", "--folder", str(tmp_path), "--minutes", "5", "--jobs", "2"]
    call += ["--case", "plan", "--case", "make-tasks", "--inputs", "400", "--most", "5", "--seed", "1"]
    call += [word for area in areas for word in ("--area", area)]
    compiled = os.environ | {"PYTHONPYCACHEPREFIX": ""}  # where Python has it: these tests import the same
    first, second = (
        subprocess.run(call, cwd=TOP, env=compiled, capture_output=True, text=True, check=False) for _ in range(2)
    )
    assert first.returncode == 0, first.stdout + first.stderr
    (progress,) = tmp_path.glob("*/progress-*.jsonl")
    assert len(progress.read_text().splitlines()) == 10
    assert second.returncode == 0 and second.stdout.count("│ all") == 1


@dataclass(frozen=True, slots=True)
class Faulty:
    """An area whose trials fail with `says`: `once` the first time alone, `ever` each time."""

    folder: Path
    says: str
    names: tuple[str, ...] = ("once", "ever", "never")
    name: str = "faulty"
    together: int = 2
    seconds: float = 60.0
    rights: str | None = "user"
    needs: Needs = Needs.NOTHING

    def trials(self, world: World) -> list[str]:
        return list(self.names)

    def opened(self, world: World, scratch: Path) -> Try:
        def tried(trial: str) -> str | None:
            mark = self.folder / trial
            wrong = trial == "ever" or (trial == "once" and not mark.exists())
            mark.touch()
            return self.says if wrong else None

        return tried


def test_a_trial_that_ran_out_of_time_is_tried_once_more_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    queues = Queues(World(tmp_path, 0), [Faulty(tmp_path, f"{HANGS}1 s")], lambda *_: False)
    found = {outcome.trial: outcome.why for outcome in outcomes(queues, jobs=2, until=time.monotonic() + 60)}
    assert found == {"once": None, "never": None}
    assert queues.late == [] and queues.not_finished() == ["faulty"]
    assert [(outcome.trial, outcome.why) for outcome in queues.unfinished] == [("ever", f"{HANGS}1 s")]


@pytest.mark.parametrize(
    ("names", "says", "code", "shown"),
    [
        (("once", "never"), "a traceback", 0, "failed once, not again: faulty: 1 x a traceback"),
        (("once", "ever"), "a traceback", 1, "\nfaulty: 1 x a traceback"),
        (("ever",), f"{HANGS}1 s", 0, "not finished, twice: faulty: 1 x hangs: * s"),
    ],
)
def test_what_does_not_fail_again_is_shown_and_does_not_count(
    names: tuple[str, ...], says: str, code: int, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr(attacking, "all_areas", lambda inputs: [Faulty(tmp_path, says, names)])
    asked = Namespace(only=None, case=None, area=None, seed=0, inputs=0, jobs=2, again=False, most=None)
    for _ in range(2):  # the next call has the same to say of what failed
        said = Console(file=StringIO(), width=160)
        assert attacking.attack(asked, tmp_path, until=time.monotonic() + 60, console=said) == code
        assert shown in said.file.getvalue()  # type: ignore[attr-defined]
    lines = "".join(file.read_text() for file in tmp_path.glob("progress-*.jsonl"))
    assert lines.count('"trial": "once"') == 2 * names.count("once")


def test_a_beginning_of_the_kills_covers_every_case_and_kind(tmp_path: Path) -> None:
    names = [("1 names", f"{case}/{n}") for case in "abc" for n in range(9)] + [
        ("2 writes", "a/10"),
        ("2 writes", "b/11"),
    ]
    found = spread(World(tmp_path, 0), names)
    assert sorted(found) == sorted(name for _, name in names)
    assert {name[0] for name in found[:3]} == set("abc") and set(found[3:5]) == {"a/10", "b/11"}
