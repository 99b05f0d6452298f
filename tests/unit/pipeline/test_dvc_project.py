"""The `.dvc` folder of a pipeline."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rla.cli.app import run
from rla.errors import UserError
from rla.pipeline.plan import begin_folder
from rla.pipeline.run import ready_dvc
from tests.unit.store.test_call_lock import held

TOP = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.usefixtures("forked_python")
OF_CLONE = (".gitignore", ".dvcignore", ".dvc/.gitignore", ".dvc/config", "dvc.yaml", "params.yaml")


def begin_clone(folder: Path) -> Path:
    """A repository with what DVC and git read of a clone."""
    (folder / ".dvc").mkdir()
    for name in OF_CLONE:
        shutil.copy(TOP / name, folder / name)
    named = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for command in (("init",), ("add", "--all"), (*named, "commit", "-m", "a")):
        quiet = [] if command == ("add", "--all") else ["--quiet"]
        subprocess.run(["git", *command, *quiet], cwd=folder, check=True)
    return folder


def git_status() -> str:
    return subprocess.run(["git", "status", "--short"], check=True, capture_output=True, text=True).stdout


def test_a_project_that_a_kill_left_half_made_is_completed(tmp_path: Path) -> None:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config.local").write_text("[core]\n    analytics = false\n")
    ready_dvc(tmp_path)
    assert "no_scm = true" in (tmp_path / ".dvc/config").read_text()
    assert "analytics = false" in (tmp_path / ".dvc/config.local").read_text()


def test_a_config_that_says_enough_is_not_written(tmp_path: Path) -> None:
    """git may follow it."""
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    ready_dvc(tmp_path)
    written = tmp_path / ".dvc/config"
    stamp = (written.read_text(), written.stat().st_ino, written.stat().st_mtime_ns)
    ready_dvc(tmp_path)
    assert ("", *stamp[1:]) == stamp == (written.read_text(), written.stat().st_ino, written.stat().st_mtime_ns)


def test_a_config_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core\n")
    with pytest.raises(UserError, match=r"\.dvc: its config or config.local cannot be read \(.*line 1"):
        ready_dvc(tmp_path)


def test_a_site_cache_may_lie_below_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "run, #2's"
    folder.mkdir()
    ready_dvc(folder)
    assert site_cache(folder).is_relative_to(folder / ".dvc/tmp/site-cache")
    text = (folder / ".dvc/config.local").read_text()
    ready_dvc(folder)
    assert (folder / ".dvc/config.local").read_text() == text


@pytest.mark.parametrize("kind", ["link", "file", "another user"])
def test_a_site_cache_that_is_not_a_folder_of_this_user_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".dvc/tmp").mkdir(parents=True)
    (tmp_path / ".dvc/config").touch()
    cache, theirs = tmp_path / ".dvc/tmp/site-cache", tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    if kind == "link":
        cache.symlink_to(theirs)
    elif kind == "file":
        cache.touch()
    else:
        cache.mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: cache.stat().st_uid + 1)
    with pytest.raises(UserError, match=r"site-cache: not a folder of this user; remove it"):
        ready_dvc(tmp_path)
    assert theirs.stat().st_mode & 0o777 == 0o755


def site_cache(folder: Path) -> Path:
    """Where DVC keeps what it knows of the project, asked of DVC."""
    asked = "from dvc.repo import Repo; print(Repo().site_cache_dir)"
    told = subprocess.run([sys.executable, "-c", asked], cwd=folder, check=True, capture_output=True, text=True).stdout
    return Path(told.strip())


def test_what_dvc_knows_of_a_project_lies_where_no_other_user_can_replace_it(tmp_path: Path) -> None:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    analytics = false\n")
    ready_dvc(tmp_path)
    own = tmp_path / ".dvc/tmp/site-cache"
    assert site_cache(tmp_path).is_relative_to(own) and own.stat().st_mode & 0o777 == 0o700


def test_a_copied_project_has_a_cache_of_its_own_and_a_chosen_one_stays(tmp_path: Path) -> None:
    local, elsewhere = tmp_path / ".dvc/config.local", "[core]\n    site_cache_dir = /elsewhere/.dvc/tmp/site-cache\n"
    local.parent.mkdir()
    for said, kept in ((elsewhere, str(tmp_path)), ("[core]\n    site_cache_dir = /chosen\n", "= /chosen\n")):
        (tmp_path / ".dvc/config").write_text("[core]\n    no_scm = true\n")
        local.write_text(said)
        ready_dvc(tmp_path)
        assert kept in local.read_text() and local.read_text().count("[core]") == 1


def config(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted((folder / ".dvc").glob("config*")))


def test_a_folder_outside_of_git_gets_a_project_without(tmp_path: Path) -> None:
    ready_dvc(tmp_path)
    assert "no_scm = true" in config(tmp_path)


def test_a_project_whose_git_repository_stayed_behind_does_without(tmp_path: Path) -> None:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    analytics = false\n")
    ready_dvc(tmp_path)
    assert "no_scm = true" in (tmp_path / ".dvc/config.local").read_text()


def test_the_top_of_a_git_repository_keeps_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    ready_dvc(tmp_path)
    assert "no_scm" not in config(tmp_path)
    (tmp_path / "runs").mkdir()
    ready_dvc(tmp_path / "runs")
    assert "no_scm = true" in config(tmp_path / "runs")


@pytest.mark.parametrize("planned_before_git", [False, True])
def test_a_new_folder_is_ready_for_experiments_as_the_guide_says(
    planned_before_git: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[3] / "docs/guide/compare.md").read_text()
    (add,) = re.findall(r"^git add .*$", guide, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    begin_folder(tmp_path, pipeline="alfworld-tiny")
    if planned_before_git:
        assert run(["plan"]) == 0
        assert "no_scm" in config(tmp_path)
    subprocess.run(["git", "init", "--quiet"], check=True)
    assert run(["plan"]) == 0
    subprocess.run(add.split(), check=True)
    named = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *named, "commit", "--quiet", "-m", "a"], check=True)
    shown = subprocess.run(["dvc", "exp", "show", "--csv"], check=True, capture_output=True, text=True).stdout
    assert shown.startswith("Experiment,") and "credit.step_weight" in shown
    left = subprocess.run(["git", "status", "--porcelain"], check=True, capture_output=True, text=True).stdout
    tracked = subprocess.run(["git", "ls-files", ".dvc"], check=True, capture_output=True, text=True).stdout
    assert (left, tracked.split()) == ("", [".dvc/.gitignore", ".dvc/config"])


def test_a_plan_in_a_clone_changes_nothing_that_git_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(begin_clone(tmp_path))
    assert run(["plan", "--iterations", "2", "--seed", "3"]) == 0
    assert yaml.safe_load(Path("iterations.yaml").read_text())["run"] == "runs/alfworld-tiny-seed3"
    Path("dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    assert git_status() == ""
    subprocess.run(["dvc", "stage", "list"], check=True, capture_output=True)


def test_a_repository_that_ignores_the_lock_is_left_out_by_dvc(tmp_path: Path) -> None:
    """Also the patterns of the user and of the repository alone, such as *.lock, which DVC heeds."""
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / ".git/info").mkdir(exist_ok=True)
    (tmp_path / ".git/info/exclude").write_text("*.lock\n")
    ready_dvc(tmp_path)
    assert "no_scm = true" in config(tmp_path)


def test_one_call_at_a_time_turns_the_loop_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second would change the plan under the first."""
    monkeypatch.chdir(tmp_path)
    begin_folder(tmp_path, pipeline="alfworld-tiny")
    before = Path("iterations.yaml").read_text()
    with held(Path("iterations.yaml")):
        assert run(["plan", "--iterations", "2"]) == 2 == run(["run", "--iterations", "2"])
    assert capsys.readouterr().err.count("iterations.yaml: another call is writing it (process") == 2
    assert Path("iterations.yaml").read_text() == before
    assert run(["plan", "--iterations", "2"]) == 0
