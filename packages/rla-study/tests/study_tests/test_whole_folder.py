"""Folders that are whole or absent."""

from __future__ import annotations

from pathlib import Path

import pytest
from rla_study.whole_folder import whole_folder

from rla.errors import UserError


def test_a_folder_is_whole_or_absent_and_a_killed_call_leaves_nothing_for_long(tmp_path: Path) -> None:
    place = tmp_path / "x"
    (tmp_path / ".x.tmp/left").mkdir(parents=True)
    with whole_folder(place) as partial:
        (partial / "a").write_text("1")
        assert not place.exists()
    assert [entry.name for entry in place.iterdir()] == ["a"]
    with pytest.raises(UserError, match="exists already"), whole_folder(place):
        pass
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "y"):
        raise ZeroDivisionError
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
