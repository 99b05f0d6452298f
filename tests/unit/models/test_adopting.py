"""`init-model` replaces model folders that it made, and no other folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rla.errors import UserError
from rla.models.checkpoint import model_digest, verify_model
from rla.models.init import adopt, keep_or_make
from rla.models.load import configured_model

MADE, OTHER = {"seed": 1}, {"seed": 2}


def source(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "README.md").write_text("of its makers")
    return folder


def made(folder: Path, made_from: dict[str, int], *, overwrite: bool = False) -> None:
    keep_or_make(
        folder,
        made_from,
        lambda partial: adopt(str(folder.parent / "source"), partial, key="model.policy"),
        overwrite=overwrite,
    )


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_somebody_else_is_left_as_it_is(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy/thesis.md").write_text("years of work")
    with pytest.raises(UserError, match="policy: not made by rla init-model"):
        made(tmp_path / "policy", MADE, overwrite=overwrite)
    assert (tmp_path / "policy/thesis.md").read_text() == "years of work"


def test_a_model_of_other_parameters_is_replaced_unless_anything_else_lies_in_it(tmp_path: Path) -> None:
    given = source(tmp_path / "source")
    made(tmp_path / "policy", MADE)
    with pytest.raises(UserError, match="made with seed 1, this call has 2; rerun with"):
        made(tmp_path / "policy", OTHER)
    (tmp_path / "policy/thesis.md").write_text("years of work")
    with pytest.raises(UserError, match=r"holds what rla did not write \(thesis\.md\)"):
        made(tmp_path / "policy", OTHER, overwrite=True)
    assert len(list((tmp_path / "policy").iterdir())) == 4
    (tmp_path / "policy/thesis.md").unlink()
    made(tmp_path / "policy", OTHER, overwrite=True)
    assert kept(tmp_path / "policy", OTHER)
    assert {path.name for path in given.iterdir()} == {"config.json", "README.md"}  # links went, not what they name


def test_a_call_that_was_killed_before_the_folder_was_there_is_repeated(tmp_path: Path) -> None:
    source(tmp_path / "source")
    (tmp_path / ".policy.tmp").mkdir()
    (tmp_path / ".policy.tmp/half").write_text("")
    made(tmp_path / "policy", OTHER)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy", "source"]


def test_a_new_model_that_cannot_be_made_leaves_the_old_one(tmp_path: Path) -> None:
    source(tmp_path / "source")
    made(tmp_path / "policy", MADE)

    def lacking(_: Path) -> None:
        raise UserError("a package is missing")

    with pytest.raises(UserError, match="a package is missing"):
        keep_or_make(tmp_path / "policy", OTHER, lacking, overwrite=True)
    assert kept(tmp_path / "policy", MADE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy", "source"]


def test_a_killed_replacing_never_passes_for_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source(tmp_path / "source")
    made(tmp_path / "policy", MADE)
    (tmp_path / "source/generation_config.json").write_text("{}")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(shutil, "rmtree", killed)
        made(tmp_path / "policy", OTHER, overwrite=True)
    with pytest.raises(UserError, match="made with seed 2, this call has 1"):
        made(tmp_path / "policy", MADE)
    made(tmp_path / "policy", MADE, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy", "source"]


@pytest.mark.parametrize("moves", range(5))
def test_a_kill_at_any_move_leaves_each_model_its_own_record(
    moves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(name: str) -> Callable[[Path], object]:
        return lambda partial: (partial / "config.json").write_text(name)

    policy, done = tmp_path / "policy", []
    keep_or_make(policy, MADE, named("first"), overwrite=False)

    class Killed(BaseException):
        pass

    def until_killed(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            if len(done) >= moves:  # a dead process undoes nothing
                raise Killed
            done.append(real)
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patched, pytest.raises(Killed):
        for name in ("rename", "replace", "unlink"):
            patched.setattr(Path, name, until_killed(getattr(Path, name)))
        patched.setattr(shutil, "rmtree", until_killed(shutil.rmtree))
        keep_or_make(policy, OTHER, named("second"), overwrite=True)
    whole = [made_from for made_from in (MADE, OTHER) if kept(policy, made_from)]
    assert whole == [MADE if policy.joinpath("config.json").read_text() == "first" else OTHER]


def kept(folder: Path, made_from: dict[str, int]) -> bool:
    """Whether the folder is a whole model of this origin."""
    try:
        keep_or_make(folder, made_from, lambda _: pytest.fail("made again"), overwrite=False)
    except UserError as error:
        assert "made with seed" in str(error)
        return False
    return True


def test_a_file_that_changed_since_is_noticed_and_mended(tmp_path: Path) -> None:
    given = source(tmp_path / "source")
    made(tmp_path / "policy", MADE)
    before = model_digest(tmp_path / "policy")
    (given / "config.json").write_text("[]")
    with pytest.raises(UserError, match=r"policy/config.json: changed since .* call `rla init-model --overwrite`"):
        verify_model(tmp_path / "policy")
    with pytest.raises(UserError, match=r"config.json: changed since"):
        made(tmp_path / "policy", MADE)
    made(tmp_path / "policy", MADE, overwrite=True)
    verify_model(tmp_path / "policy")
    assert model_digest(tmp_path / "policy") != before


def test_a_model_with_a_damaged_record_is_replaced_but_never_a_file_of_somebody_else(tmp_path: Path) -> None:
    source(tmp_path / "source")
    made(tmp_path / "policy", MADE)
    (tmp_path / "policy/.origin.json").write_text("{")
    (tmp_path / "policy/thesis.md").write_text("years of work")
    with pytest.raises(UserError, match="not valid JSON"):
        made(tmp_path / "policy", MADE)
    with pytest.raises(UserError, match=r"holds what rla did not write \(thesis\.md\)"):
        made(tmp_path / "policy", MADE, overwrite=True)
    (tmp_path / "policy/thesis.md").unlink()
    made(tmp_path / "policy", MADE, overwrite=True)
    assert kept(tmp_path / "policy", MADE)


@pytest.mark.parametrize("name", ["notes/mine.json", "mine.txt", "notes/config.json"])
def test_beside_a_damaged_record_a_file_of_another_name_is_somebody_elses(name: str, tmp_path: Path) -> None:
    source(tmp_path / "source")
    made(tmp_path / "policy", MADE)
    (tmp_path / "policy/.origin.json").write_text("{")
    (tmp_path / "policy" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "policy" / name).write_text("years of work")
    with pytest.raises(UserError, match="holds what rla did not write"):
        made(tmp_path / "policy", MADE, overwrite=True)
    assert (tmp_path / "policy" / name).is_file()


@pytest.mark.parametrize("source", ["./missing", "/no/such/folder", "a/b/c", "models/missing"])
def test_a_path_that_is_no_folder_is_not_looked_for_on_the_hub(source: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"^model\.reward: {source} is not a folder; give"):
        adopt(source, tmp_path, key="model.reward")


def test_a_folder_without_a_model_names_the_parameter(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"^model\.policy: .*empty has no config\.json; give"):
        adopt(str(tmp_path / "empty"), tmp_path, key="model.policy")


@pytest.mark.parametrize("weights", [True, False])
def test_a_model_of_the_hub_is_fetched_with_or_without_its_weights(
    weights: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = source(tmp_path / "snapshot")
    asked: list[tuple[str, bool]] = []

    def download(name: str, *, allow_patterns: list[str]) -> str:
        asked.append((name, "*.safetensors" in allow_patterns))
        return str(fetched)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert configured_model("someone/model", key="model.policy", weights=weights) == fetched
    assert asked == [("someone/model", weights)]
