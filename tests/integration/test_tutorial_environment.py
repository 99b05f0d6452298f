"""Tutorial 4 as a reader follows it: its files are written, its commands and programs run, in the order of the page.

A block whose first line is a comment with a path is a file, or, with a place after the path, a part of one. The package
is installed into a folder of the test in place of the reader's environment, the run is smaller, and calls of `rla` are
forked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rla.config import apply_overrides
from tests.integration.pipelines import environment
from tests.unit.docs.markdown_pages import DOCS, TOP, Block, blocks

PAGE = DOCS / "tutorial/4-add-an-environment.md"
INSTALL = "pip install --quiet -e guess-number"
FUTURE = "from __future__ import annotations\n"
SMALLER = (
    "model={hidden_size: 32, layers: 1, intermediate_size: 32, context: 256}",
    "tasks={train_scenes: 6, test_scenes: 3, tasks_per_scene: 1}",
    "rollout={tasks_per_iteration: 6, rollouts_per_task: 4}",
    "adaptation={alpha_low: 0.45, alpha_high: 0.55}",
    "warm_start.policy={examples: 24, steps: 3, batch_size: 8}",
    "warm_start.reward={examples: 16, steps: 2, batch_size: 8}",
    "evaluation={rollouts_per_task: 2, max_steps: 6}",
)


@pytest.fixture
def reader(tmp_path: Path, forking: Path) -> dict[str, str]:
    """The environment of a reader's shell."""
    for name in ("guess-number", "site"):
        (tmp_path / name).mkdir(mode=0o700)
    path = os.pathsep.join(map(str, (TOP, tmp_path / "guess-number", tmp_path / "site")))
    variables = environment() | {"PYTHONPATH": path}
    return variables | {"PATH": f"{forking}{os.pathsep}{variables['PATH']}"}


def call(script: str, folder: Path, variables: dict[str, str], program: tuple[str, ...] = ("bash", "-euc")) -> str:
    done = subprocess.run(
        [*program, script], cwd=folder, env=variables, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def written(block: Block, folder: Path) -> bool:
    """Whether the block is a file or a part of one, which is there now."""
    first, _, text = block.text.partition("\n")
    if not first.startswith("# guess-number/"):
        return False
    name, _, place = first.removeprefix("# ").partition(", ")
    file = folder / name
    if place == "among the imports":
        before, future, after = file.read_text().partition(FUTURE)
        assert future
        text = f"{before}{future}{text}{after}"
    elif place:
        assert place == "at the end of the class"
        text = f"{file.read_text()}\n{text}"
    file.write_text(text)
    if file.suffix == ".yaml":
        file.write_text(yaml.safe_dump(apply_overrides(yaml.safe_load(text), SMALLER)))
    return True


def test_the_page_runs(tmp_path: Path, reader: dict[str, str]) -> None:
    pip = f"{sys.executable} -m pip install --quiet --no-index --no-deps --no-build-isolation --target site"
    told = ""
    for block in blocks(PAGE.read_text()):
        if not block.runs or written(block, tmp_path):
            continue
        if block.language == "bash":
            told += call(block.text.replace(INSTALL, f"{pip} ./guess-number"), tmp_path, reader)
        elif block.language == "python":
            told += call(block.text, tmp_path, reader, (sys.executable, "-c"))
    assert "(the five required members alone)" in told
    assert told.count(" 0 broken") == 2
    assert "BROKEN" not in told
    assert "votes that the labels confirm" in told
