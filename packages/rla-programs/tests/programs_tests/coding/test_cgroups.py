"""Where boxes may have cgroups, and what becomes of one: on a folder that looks like /sys/fs/cgroup."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rla_programs.execution import Limits, cgroups
from rla_programs.execution.cgroups import BESIDE_MB, NAME, BoxGroup, box_group, delegated, remove_empty


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "SYSTEMD", tmp_path / "no systemd")
    top = tmp_path / "cgroup"
    group(top / "user/stage", "")
    return group(top, "memory pids")


def group(path: Path, handed_on: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.subtree_control").write_text(f"{handed_on}\n")
    (path / "cgroup.procs").touch()
    return path


def process(folder: Path, own: str, top: Path | None) -> Path:
    """A /proc/self: its cgroup, and where cgroup v2 is mounted."""
    found = folder / "self"
    found.mkdir(exist_ok=True)
    mount = "" if top is None else f"41 23 0:27 / {top} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
    (found / "mountinfo").write_text(f"22 1 0:20 / /proc rw - proc proc rw\n{mount}")
    (found / "cgroup").write_text(f"4:memory:/elsewhere\n{own}")
    return found


def test_boxes_lie_beside_a_group_whose_parent_hands_memory_on(tmp_path: Path, top: Path) -> None:
    here = process(tmp_path, "0::/user/stage\n", top)
    group(top / "user", "pids")
    assert delegated(here) is None
    group(top / "user", "cpu memory pids")
    assert delegated(here) == top / "user"
    assert delegated(process(tmp_path, "0::/\n", top)) == top


def test_there_is_none_without_the_second_version_or_outside_of_what_is_mounted(tmp_path: Path, top: Path) -> None:
    assert delegated(process(tmp_path, "0::/user/stage\n", None)) is None
    assert delegated(process(tmp_path, "", top)) is None
    assert delegated(process(tmp_path, "0::/../stage\n", top)) is None


def test_what_systemd_keeps_is_not_ours(tmp_path: Path, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = process(tmp_path, "0::/\n", top)
    monkeypatch.setattr(cgroups, "SYSTEMD", tmp_path)
    assert delegated(here) is None
    attributes = {(str(top), "user.delegate"): b"1"}
    monkeypatch.setattr(os, "getxattr", lambda path, name: attributes[str(path), name])
    assert delegated(here) == top


def test_a_group_bounds_the_processes_and_the_files_together(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", lambda path: os.mkdir(path) or (path / "cgroup.procs").touch())
    made = box_group(top, Limits(memory_mb=256, processes=4, file_mb=16))
    os.write(made.joining, b"0")
    os.close(made.joining)
    assert (made.path / "cgroup.procs").read_text() == "0"
    assert (made.path / "memory.max").read_text() == str((4 * 256 + 16 + BESIDE_MB) << 20)
    assert (made.path / "memory.swap.max").read_text() == "0"


def test_each_end_for_want_of_memory_is_told_once(tmp_path: Path) -> None:
    made = BoxGroup(tmp_path, -1)
    seen = []
    for killed in (0, 1, 1, 3):
        (tmp_path / "memory.events").write_text(f"low 0\nmax 17\noom {killed}\noom_kill {killed}\n")
        seen.append(made.starved())
    assert seen == [False, True, False, True]


def test_groups_that_are_left_behind_are_removed_but_not_those_in_use(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (f"{NAME}1-0", f"{NAME}1-1/task", "other"):
        (top / name).mkdir(parents=True)
    remove_empty(top)
    assert sorted(path.name for path in top.iterdir() if path.is_dir()) == ["other", f"{NAME}1-1", "user"]
    monkeypatch.setattr(cgroups, "EMPTY_S", 0.05)
    for name in ("1-1", "gone"):
        BoxGroup(top / f"{NAME}{name}", -1).remove()  # in use, and gone: neither raises
    (top / f"{NAME}1-1/task").rmdir()
    BoxGroup(top / f"{NAME}1-1", -1).remove()
    assert not (top / f"{NAME}1-1").exists()
