"""Files that are whole or absent, also where the disk is full: one error that names the file, and no litter."""

import errno
import os
from pathlib import Path

import pytest

from rla.errors import UserError
from rla.store.atomic import create_json, write_atomic, write_json


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


@pytest.mark.parametrize("links", [True, False])
def test_a_file_is_created_once(links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    assert create_json(tmp_path / "x", [1], writer="-1")
    assert not create_json(tmp_path / "x", [2], writer="-2")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"] and "1" in (tmp_path / "x").read_text()
