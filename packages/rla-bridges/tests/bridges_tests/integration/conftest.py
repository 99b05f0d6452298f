"""What tests of servers share."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.cli.app import run
from tests.integration.pipelines import PARAMS


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has its first trajectories."""
    folder = tmp_path_factory.mktemp("played")
    (folder / "params.yaml").write_text(PARAMS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(["rollout", "--run", "r"]) == 0
    return folder
