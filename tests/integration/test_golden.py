"""Shards of a fixed seed and of scripted replies stay as they are: what a stage writes does not change by accident.

Every row of every shard of an ALFWorld run is digested as JSON and compared with `golden.json`. The column `policy` is
left out, because it is a digest of the checkpoint's own record. After a change that is meant to change rows, write the
file anew with `python -m tests.integration.golden`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.golden import GOLDEN, alfworld


@contextmanager
def played_in(folder: Path, script: Callable[[Path], dict[str, str]]) -> Iterator[Path]:
    """`folder`, in which the script was played; its digests lie beside the run."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        (folder / "digests.json").write_text(json.dumps(script(folder)))
        yield folder
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with played_in(tmp_path_factory.mktemp("alfworld"), alfworld) as folder:
        yield folder


def test_a_scripted_iteration_writes_the_recorded_rows(scripted: Path) -> None:
    assert json.loads((scripted / "digests.json").read_text()) == json.loads(GOLDEN.read_text())
