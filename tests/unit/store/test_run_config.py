"""`config.yaml` of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.errors import UserError
from rla.store.manifest import HEADER, read_run_config, write_run_config

PARAMS = {"seed": 3, "credit": {"step_weight": 0.5, "name": "ünï: #x"}, "rollout": {"cut": None, "splits": ["a", "b"]}}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_run_config(tmp_path / "run", PARAMS)
    assert read_run_config(tmp_path / "run") == PARAMS


def test_equal_parameters_leave_the_file_as_it_is(tmp_path: Path) -> None:
    write_run_config(tmp_path, PARAMS)
    before = (tmp_path / "config.yaml").stat().st_ino
    write_run_config(tmp_path, PARAMS)
    assert (tmp_path / "config.yaml").stat().st_ino == before
    write_run_config(tmp_path, PARAMS | {"seed": 4})
    assert read_run_config(tmp_path)["seed"] == 4


@pytest.mark.parametrize(
    ("content", "said"), [(None, "no such file"), ("a: [", "not valid YAML"), ("- a", "no mapping"), ("\xff", "valid")]
)
def test_a_file_that_is_none_is_named(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "config.yaml").write_bytes(HEADER.encode() + content.encode("latin-1"))
    with pytest.raises(UserError, match=rf"config\.yaml: .*{said}"):
        read_run_config(tmp_path)


@pytest.mark.parametrize("first", ["# Written by rla 0.0.9", "# All parameters of this run.", ""])
def test_a_run_of_another_version_is_refused(tmp_path: Path, first: str) -> None:
    write_run_config(tmp_path, PARAMS)
    file = tmp_path / "config.yaml"
    file.write_text("\n".join([first, *file.read_text().splitlines()[1:]]))
    said = 'version "0.0.9"' if "0.0.9" in first else "an unknown version"
    with pytest.raises(UserError, match=rf"config\.yaml: written by {said} of rla, and this is .*name another run"):
        read_run_config(tmp_path)
