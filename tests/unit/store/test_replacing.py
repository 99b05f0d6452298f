"""A folder that takes another's place: at every instant the old one is there, or the new one is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rla.errors import UserError
from rla.store.atomic import bring_back, building, settle, take_place

MOVES = 5  # renames and removals of one replacing: aside, into place, to go, a file, its folder


def filled(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "record").write_text(text)
    return folder


def ours(path: Path) -> bool:
    return path.name == "record"


def replaced(place: Path) -> None:
    """A new folder takes the place."""
    with building(place) as partial:
        (partial / "record").write_text("new")
        take_place(partial, place, ours)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_of_the_old_one_is_left(tmp_path: Path) -> None:
    filled(tmp_path / "x", "old")
    replaced(tmp_path / "x")
    assert names(tmp_path) == ["x"] and (tmp_path / "x/record").read_text() == "new"


@pytest.mark.parametrize("moves", range(1, MOVES + 1))
def test_a_kill_at_any_move_leaves_one_of_them_whole(
    moves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "x", "old")
    done = []

    class Killed(BaseException):
        pass

    def until_killed(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def call(*arguments: object, **options: object) -> object:
            if len(done) >= moves - 1:  # a dead process undoes nothing
                raise Killed
            done.append(name)
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    with monkeypatch.context():
        until_killed(Path, "rename")
        for name in ("unlink", "rmdir"):
            until_killed(os, name)
        with pytest.raises(Killed):
            replaced(tmp_path / "x")
        monkeypatch.undo()
    settle(tmp_path / "x")
    assert (tmp_path / "x/record").read_text() == ("old" if moves <= 2 else "new")
    assert names(tmp_path) == ["x"]


def test_what_is_foreign_is_refused_before_anything_moves(tmp_path: Path) -> None:
    (filled(tmp_path / "x", "old") / "thesis.md").write_text("years of work")
    with pytest.raises(UserError, match=r"holds what rla did not write \(thesis\.md\)"):
        replaced(tmp_path / "x")
    assert names(tmp_path) == ["x"] and (tmp_path / "x/record").read_text() == "old"


def test_if_the_new_one_cannot_move_the_old_one_comes_back(tmp_path: Path) -> None:
    filled(tmp_path / "x", "old")
    with pytest.raises(FileNotFoundError):
        take_place(tmp_path / "missing", tmp_path / "x", ours)
    assert names(tmp_path) == ["x"] and (tmp_path / "x/record").read_text() == "old"


def test_a_reader_finds_the_old_one_that_a_killed_call_left_aside(tmp_path: Path) -> None:
    filled(tmp_path / ".x.old", "old")
    bring_back(tmp_path / "x")
    assert names(tmp_path) == ["x"] and (tmp_path / "x/record").read_text() == "old"
    filled(tmp_path / ".x.old", "older")
    bring_back(tmp_path / "x")
    assert names(tmp_path) == [".x.old", "x"]  # the next writer removes it


def test_the_only_copy_stays_if_it_cannot_be_moved_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(folder: Path) -> None:
        raise UserError(f"{folder}: too many open files")

    filled(tmp_path / ".x.old", "old")
    monkeypatch.setattr("rla.store.atomic.lock_folder", refused)
    with pytest.raises(UserError, match=r"x: cannot be moved back from \.x\.old, its only copy"):
        settle(tmp_path / "x")
    assert (tmp_path / ".x.old/record").read_text() == "old"
