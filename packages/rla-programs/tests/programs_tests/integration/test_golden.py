"""Rows of a scripted run of `coding` stay as they are, as those of ALFWorld do (`tests/integration/test_golden.py`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from study_tests.integration.test_show import assert_episodes_are_shown

from programs_tests.integration.golden import GOLDEN, coding
from tests.integration.conftest import Rla
from tests.integration.test_golden import played_in


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with played_in(tmp_path_factory.mktemp("coding"), coding) as folder:
        yield folder


def test_a_scripted_iteration_writes_the_recorded_rows(scripted: Path) -> None:
    assert json.loads((scripted / "digests.json").read_text()) == json.loads(GOLDEN.read_text())


def test_its_episodes_can_be_shown(scripted: Path, rla: Rla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scripted)
    assert_episodes_are_shown(scripted, rla)
    code, _, error = rla("show", "--run", "r", "--iteration", "1", "--worst")
    assert code == 2 and "the environment coding does not say which steps helped" in error
