"""`init-model` replaces model folders that it made, and no other folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.errors import UserError
from rla.models.adopting import adopt, whole_model

MADE, OTHER = {"seed": 1}, {"seed": 2}


def source(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "README.md").write_text("of its makers")
    return folder


def made(folder: Path, made_from: dict[str, int], *, overwrite: bool = False) -> None:
    if not whole_model(folder, made_from, overwrite=overwrite):
        adopt(str(folder.parent / "source"), folder)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_somebody_else_is_left_as_it_is(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy/thesis.md").write_text("years of work")
    with pytest.raises(UserError, match="policy: not made by rla init-model"):
        whole_model(tmp_path / "policy", MADE, overwrite=overwrite)
    assert (tmp_path / "policy/thesis.md").read_text() == "years of work"


def test_a_model_of_other_parameters_is_replaced_unless_anything_else_lies_in_it(tmp_path: Path) -> None:
    given = source(tmp_path / "source")
    made(tmp_path / "policy", MADE)
    with pytest.raises(UserError, match="made with other parameters"):
        made(tmp_path / "policy", OTHER)
    (tmp_path / "policy/thesis.md").write_text("years of work")
    with pytest.raises(UserError, match=r"holds what rla did not write \(thesis\.md\)"):
        made(tmp_path / "policy", OTHER, overwrite=True)
    assert len(list((tmp_path / "policy").iterdir())) == 3
    (tmp_path / "policy/thesis.md").unlink()
    made(tmp_path / "policy", OTHER, overwrite=True)
    assert whole_model(tmp_path / "policy", OTHER, overwrite=False)
    assert {path.name for path in given.iterdir()} == {"config.json", "README.md"}  # links went, not what they name


def test_a_call_that_was_killed_before_the_folder_was_there_is_repeated(tmp_path: Path) -> None:
    source(tmp_path / "source")
    assert not whole_model(tmp_path / "policy", MADE, overwrite=False)  # and then it died
    (tmp_path / ".policy.tmp").mkdir()
    (tmp_path / ".policy.tmp/half").write_text("")
    made(tmp_path / "policy", OTHER)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy", "policy.origin.json", "source"]
