"""Files that are whole or absent, also where the disk is full: one error that names the file, and no litter."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from time import sleep

import pytest

from rla.errors import UserError
from rla.store.atomic import write_atomic, write_json, write_text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_what_the_system_refuses_is_one_error_and_leaves_what_was_there(number: int, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})

    def full(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(number, os.strerror(number))

    with pytest.raises(UserError, match=rf"x\.json: cannot be written \({os.strerror(number)}\); mend that and call"):
        write_atomic(path, full)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]
    assert path.read_text() == '{\n "a": 1\n}\n'


def test_equal_calls_write_one_after_the_other(tmp_path: Path) -> None:
    """One that began second would otherwise truncate what the first is about to name."""
    inside, written = Barrier(2, timeout=10), []

    def slow(temporary: Path) -> None:
        temporary.write_text("first, whole")
        inside.wait()
        sleep(0.05)
        written.append(temporary.read_text())

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(write_atomic, tmp_path / "x", slow)
        inside.wait()
        write_atomic(tmp_path / "x", lambda temporary: written.append("second") or temporary.write_text("second"))
        first.result()
    assert written == ["first, whole", "second"] and (tmp_path / "x").read_text() == "second"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("done", [True, False])
def test_a_rename_that_the_file_system_answers_with_enoent(
    done: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS repeats a request whose answer was lost; the second one finds no file of the old name."""
    rename = Path.replace

    def answered(self: Path, target: Path) -> Path:
        if done:
            rename(self, target)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(self), None, str(target))

    monkeypatch.setattr(Path, "replace", answered)
    if done:
        write_text(tmp_path / "x", "whole")
        assert (tmp_path / "x").read_text() == "whole"
    else:
        with pytest.raises(UserError, match="x: cannot be written"):
            write_text(tmp_path / "x", "whole")


def test_half_a_surrogate_pair_in_a_text_file_is_replaced(tmp_path: Path) -> None:
    write_text(tmp_path / "x", "a\ud800b\ud83d\ude00")
    assert (tmp_path / "x").read_text() == "a\ufffdb\U0001f600"
