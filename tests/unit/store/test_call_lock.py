"""Who may write an output while another call holds its lock."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rla.errors import UserError
from rla.store.atomic import WHOLE, Slice, lock_outputs

HOLD = """
import sys
from pathlib import Path
from rla.store.atomic import lock_outputs
from rla.store.atomic import Slice
index, count = map(int, sys.argv[2:])
with lock_outputs([Path(sys.argv[1])], Slice(index=index, count=count)):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(place: Path, part: Slice = WHOLE) -> Iterator[None]:
    """Another process holds the lock of `part` of the output meanwhile."""
    command = [sys.executable, "-c", HOLD, str(place), str(part.index), str(part.count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        yield
        process.communicate()


def refused(place: Path, part: Slice = WHOLE) -> bool:
    try:
        with lock_outputs([place], part):
            return False
    except UserError:
        return True


def slice_of(index: int, count: int = 2) -> Slice:
    return Slice(index=index, count=count)


def test_a_whole_call_excludes_every_other_one(tmp_path: Path) -> None:
    with held(tmp_path / "x"):
        assert refused(tmp_path / "x") and refused(tmp_path / "x", slice_of(1))
        assert not refused(tmp_path / "y")
    assert not refused(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_a_killed_call_has_left_holds_nothing_and_goes_with_the_next_one(tmp_path: Path) -> None:
    (tmp_path / ".x.lock").touch()
    with lock_outputs([tmp_path / "x"]):
        pass
    assert list(tmp_path.iterdir()) == []


def test_slices_work_side_by_side_but_each_only_once(tmp_path: Path) -> None:
    with held(tmp_path / "x", slice_of(1)):
        assert refused(tmp_path / "x") and refused(tmp_path / "x", slice_of(1))
        assert not refused(tmp_path / "x", slice_of(2))
        assert not refused(tmp_path / "x", slice_of(0))  # the call that starts all slices
        assert refused(tmp_path / "x")  # the end of another slice does not free it
    assert list(tmp_path.iterdir()) == []


def test_slices_of_another_number_are_refused_while_one_is_at_work(tmp_path: Path) -> None:
    for index in (0, 1):  # the call that starts all slices, and a slice
        with held(tmp_path / "x", slice_of(index)):
            assert all(refused(tmp_path / "x", slice_of(each, 3)) for each in range(4))
            assert not refused(tmp_path / "x-1", slice_of(1, 3))
    (tmp_path / ".x-1-of-4.lock").touch()  # left by a call that was killed
    assert not refused(tmp_path / "x", slice_of(1, 3))
    assert list(tmp_path.iterdir()) == []


def test_the_same_folder_by_another_name_has_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with held(tmp_path / "real"):
        assert refused(tmp_path / "link")


def test_folders_made_for_a_lock_alone_go_with_it(tmp_path: Path) -> None:
    with lock_outputs([tmp_path / "r/1/x"]):
        assert (tmp_path / "r/1").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_locked_is_left_to_the_call(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with lock_outputs([tmp_path / "file/x"]):
        pass
    with pytest.raises(ZeroDivisionError), lock_outputs([tmp_path / "x"]):
        raise ZeroDivisionError


def test_a_full_disk_leaves_no_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with lock_outputs([tmp_path / "x"]):
        pass
    assert list(tmp_path.iterdir()) == []
