"""What `rla init` writes, and what it refuses."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rla.envs.registry import load_config
from rla.errors import UserError
from rla.pipeline.plan import (
    IGNORED,
    Plan,
    begin_folder,
    params_file,
    pipelines,
    recipe_call,
    recommended,
    refuse_unnamed,
    run_folder,
)
from rla.store.atomic import write_text
from rla.store.layout import resource
from tests.unit.builders import install

FILES = ("dvc.yaml", "params.yaml", "iterations.yaml")

OWN = sorted(set(pipelines()) - {"small"})


@pytest.fixture(scope="module")
def begun(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, list[Path]]:
    """A pipeline, the folder that begins with it, and the files that were made."""
    name, folder = request.param, tmp_path_factory.mktemp("begun")
    return name, folder, begin_folder(folder, pipeline=name, env="alfworld" if name == "small" else None)


@pytest.mark.parametrize("begun", OWN, indirect=True)
def test_a_pipeline_is_whole_in_a_folder_of_its_own(
    begun: tuple[str, Path, list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, folder, made = begun
    monkeypatch.chdir(folder)
    params = Path("params.yaml")
    config = load_config(params)
    launched = {config.launch.training} - {None}
    assert {str(path.relative_to(folder)) for path in made} == {*FILES, *IGNORED, *launched}
    assert all(Path(file).is_file() for file in launched if file)
    refuse_unnamed(params, config, Path("dvc.yaml"))
    assert run_folder(Plan(iterations=1)) == Path("runs") / name
    assert yaml.safe_load(Path("iterations.yaml").read_text())["run"] == f"runs/{name}"
    assert Path("dvc.yaml").read_bytes() == resource("dvc.yaml").read_bytes()


def test_any_environment_is_named_in_its_params(tmp_path: Path) -> None:
    begin_folder(tmp_path, pipeline="small", env="alfworld")
    params = yaml.safe_load((tmp_path / "params.yaml").read_text())
    assert (params["name"], params["env"]["name"]) == ("alfworld-small", "alfworld")


@pytest.mark.parametrize(
    ("name", "call", "last", "untrained"),
    [
        ("alfworld-tiny", "rla run", 12, []),
        ("alfworld-24gb", "rla run --iterations 20 --evaluate-every 5", 20, ["init"]),
    ],
)
def test_the_call_that_a_recipe_recommends_is_kept(
    name: str, call: str, last: int, untrained: list[str], tmp_path: Path
) -> None:
    begin_folder(tmp_path, pipeline=name)
    plan = yaml.safe_load((tmp_path / "iterations.yaml").read_text())
    assert recipe_call(tmp_path / "params.yaml") == call
    assert recommended(tmp_path / "params.yaml", evaluate_every=7) == (last, 7)
    assert (plan["last"], list(plan["untrained"])) == (last, untrained)
    assert 5 in plan["evaluations"] or name == "alfworld-tiny"


def test_a_params_file_in_another_encoding_still_has_its_call(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_bytes("# für mich\n# rla run --iterations 3\n".encode("latin-1"))
    assert recipe_call(tmp_path / "params.yaml") == "rla run --iterations 3"


@pytest.mark.parametrize("file", FILES)
def test_a_folder_that_has_such_a_file_is_left_as_it_is(file: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text("mine")
    with pytest.raises(UserError, match=f"{file}: is there already"):
        begin_folder(tmp_path, pipeline="alfworld-tiny")
    assert [path.name for path in tmp_path.iterdir()] == [file]


def written(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("begun", [*OWN, "small"], indirect=True)
def test_no_file_speaks_of_a_clone(begun: tuple[str, Path, list[Path]]) -> None:
    name, folder, _ = begun
    assert not re.search(r"\bmake \w|schemas/|docs/|tests/|--params pipelines/", "".join(written(folder).values()))
    assert (folder / "params.yaml").read_text().startswith(f"# The parameters of the pipeline {name},")


def test_a_call_that_was_killed_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_folder(tmp_path / "whole", pipeline="alfworld-qwen2.5-7b")
    for count in range(6):
        left = iter(range(count))

        def killed(path: Path, text: str, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            write_text(path, text)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("rla.pipeline.plan.write_text", killed)
            begin_folder(tmp_path / str(count), pipeline="alfworld-qwen2.5-7b")
        begin_folder(tmp_path / str(count), pipeline="alfworld-qwen2.5-7b")
        assert written(tmp_path / str(count)) == written(tmp_path / "whole")


@pytest.mark.parametrize("below", ["", "deep/deeper"])
def test_a_file_in_place_of_the_folder_is_named(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=r"/file.*: a file is in the way of this folder; choose another path"):
        begin_folder(tmp_path / "file" / below, pipeline="alfworld-tiny")
    assert written(tmp_path) == {"file": "mine"}


def test_an_ignore_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine")
    begin_folder(tmp_path, pipeline="alfworld-tiny")
    assert (tmp_path / ".gitignore").read_text() == "mine"


@pytest.mark.parametrize(
    ("pipeline", "env", "message"),
    [
        ("none", None, "no such pipeline; there are alfworld-tiny"),
        ("small", None, "say which by --env NAME"),
        ("small", "chess", "env.name is 'chess'"),
        ("alfworld-qwen2.5-7b", "chess", "alfworld-qwen2.5-7b has an environment of its own"),
    ],
)
def test_what_cannot_begin_writes_nothing(pipeline: str, env: str | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        begin_folder(tmp_path / "new", pipeline=pipeline, env=env)
    assert not (tmp_path / "new").exists()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package of two pipelines, and one that is broken. Gives the folder of the first."""
    site = tmp_path / "site"
    (site / "dice").mkdir(parents=True)
    for name in ("alfworld-qwen2.5-7b", "dice-tiny"):
        (site / f"dice/{name}.yaml").write_text("# Dice.\nenv: {name: dice}\n")
    (site / "dice/only-a-design.yaml").write_text("arms: {}\n")
    (site / "pipelines_of_a_test.py").write_text(
        f"from pathlib import Path\n\nDICE, FILE = Path({str(site / 'dice')!r}), 3\n"
    )
    entries = ("dice = pipelines_of_a_test:DICE", "file = pipelines_of_a_test:FILE", "gone = pipelines_of_a_test:GONE")
    install(site, "dice", "1.5", "\n".join(["[rla.pipelines]", *entries]))
    monkeypatch.syspath_prepend(str(site))
    yield site / "dice"
    sys.modules.pop("pipelines_of_a_test", None)


def test_a_package_brings_pipelines_but_none_in_place_of_ours(package: Path, tmp_path: Path) -> None:
    broken: list[str] = []
    found = pipelines(broken)
    assert found["dice-tiny"] == package / "dice-tiny.yaml" and "only-a-design" not in found
    assert found["alfworld-qwen2.5-7b"] == resource("pipelines/alfworld-qwen2.5-7b.yaml")
    assert [flaw.partition(",")[0] for flaw in broken] == [
        "rla.pipelines: file is pipelines_of_a_test:FILE",
        "rla.pipelines: gone is pipelines_of_a_test:GONE",
    ]
    assert params_file(None, "dice") == package / "dice-tiny.yaml"
    begin_folder(tmp_path / "new", pipeline="dice-tiny")
    params = yaml.safe_load((tmp_path / "new/params.yaml").read_text())
    assert (params["name"], params["env"]["name"]) == ("dice-tiny", "dice")


def test_an_unknown_pipeline_may_be_one_of_a_broken_package(package: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"no such pipeline; there are alfworld-tiny.*; rla.pipelines: file is .* not the"
    ):
        begin_folder(tmp_path / "new", pipeline="none")
