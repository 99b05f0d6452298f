"""A folder that takes another's place: at every instant the old one is there, or the new one is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rla.errors import UserError
from rla.store.removing import RecordBeside, bring_back, settle, take_place

MOVES = 5  # renames and removals of one replacing: aside, into place, to go, one file, its folder


def filled(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "record").write_text(text)
    return folder


def ours(folder: Path) -> Callable[[Path], bool]:
    return lambda path: path.name == "record"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_of_the_old_one_is_left(tmp_path: Path) -> None:
    filled(tmp_path / "x", "old")
    take_place(filled(tmp_path / "x.tmp", "new"), tmp_path / "x", ours)
    assert names(tmp_path) == ["x"] and (tmp_path / "x/record").read_text() == "new"


@pytest.mark.parametrize("moves", range(1, MOVES + 1))
def test_a_kill_at_any_move_leaves_one_of_them_whole(
    moves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "x", "old")
    done = []

    class Killed(BaseException):
        pass

    def counted(name: str) -> None:
        real = getattr(Path, name)

        def until_killed(path: Path, *arguments: object, **options: object) -> object:
            if len(done) >= moves - 1:  # a dead process undoes nothing
                raise Killed
            done.append(name)
            return real(path, *arguments, **options)

        monkeypatch.setattr(Path, name, until_killed)

    with monkeypatch.context():
        for name in ("rename", "unlink", "rmdir"):
            counted(name)
        with pytest.raises(Killed):
            take_place(filled(tmp_path / "x.tmp", "new"), tmp_path / "x", ours)
        monkeypatch.undo()
    settle(tmp_path / "x", ours)
    assert (tmp_path / "x/record").read_text() == ("old" if moves <= 2 else "new")
    assert set(names(tmp_path)) <= {"x", "x.tmp"}


def test_what_is_foreign_is_refused_before_anything_moves(tmp_path: Path) -> None:
    (filled(tmp_path / "x", "old") / "thesis.md").write_text("years of work")
    with pytest.raises(UserError, match=r"holds what rla did not write \(thesis\.md\)"):
        take_place(filled(tmp_path / "x.tmp", "new"), tmp_path / "x", ours)
    assert names(tmp_path) == ["x", "x.tmp"] and (tmp_path / "x/record").read_text() == "old"


def test_where_the_new_one_cannot_move_the_old_one_comes_back(tmp_path: Path) -> None:
    (filled(tmp_path / "x", "old").with_name("x.json")).write_text('"of the old one"')
    beside = RecordBeside(file=tmp_path / "x.json", content={"of": "the new one"})
    with pytest.raises(FileNotFoundError):
        take_place(tmp_path / "missing", tmp_path / "x", ours, beside=beside)
    assert names(tmp_path) == ["x", "x.json"] and names(tmp_path / "x") == ["record"]
    assert (tmp_path / "x.json").read_text() == '"of the old one"'


def test_what_another_call_left_since_is_settled_first(tmp_path: Path) -> None:
    """Here a call was killed after this one had looked; the file system then refused the second old folder."""
    for name in ("x", ".x.old"):
        filled(tmp_path / name, name)
    take_place(filled(tmp_path / "x.tmp", "new"), tmp_path / "x", ours)
    assert names(tmp_path) == ["x"] and (tmp_path / "x/record").read_text() == "new"


def test_a_reader_finds_the_old_one_that_a_killed_call_left_aside(tmp_path: Path) -> None:
    filled(tmp_path / ".x.old", "old")
    bring_back(tmp_path / "x")
    assert names(tmp_path) == ["x"] and (tmp_path / "x/record").read_text() == "old"
    filled(tmp_path / ".x.old", "older")
    bring_back(tmp_path / "x")
    assert names(tmp_path) == [".x.old", "x"]  # whoever writes next removes it
