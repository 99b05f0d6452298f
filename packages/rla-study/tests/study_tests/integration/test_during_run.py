"""What `rla run` says between its stages and at its end, through the entry point of the package."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.integration.test_loop import RUN, folder, run

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("forked_python")


def test_a_run_says_its_milestones(folder: Path) -> None:
    pipeline = yaml.safe_load((folder / "dvc.yaml").read_text())
    for stage in ("adapt-env", "report"):  # nothing is said of them
        del pipeline["stages"][stage]
    (folder / "dvc.yaml").write_text(yaml.safe_dump(pipeline, sort_keys=False))
    said = run(RUN, folder).splitlines()
    assert any(line.startswith("held-out success before training: ") for line in said)
    assert any(line.startswith("iteration 1 took ") and " core hours" in line for line in said)
    assert said[-2:] == [
        "to serve it: vllm serve r/1/policy/model --served-model-name policy",
        "to go on: rla run --iterations 2 --run r",
    ]
