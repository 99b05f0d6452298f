"""Shards of a fixed seed and of scripted replies stay as they are: what a stage writes does not change by accident.

Every row of every shard of an ALFWorld and of a coding run is digested as JSON and compared with `golden.json`. The
column `policy` is left out, because it is a digest of the checkpoint's own record. After a change that is meant to
change rows, write the file anew with `python -m tests.integration.golden`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.golden import GOLDEN, SCRIPTS


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_scripted_iteration_writes_the_recorded_rows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert SCRIPTS[name](tmp_path) == json.loads(GOLDEN.read_text())[name]
