"""The commands of the README run, and the code of the tutorials, page after page in one folder, as a reader runs it:
with smaller parameters alone, and forked calls of `rla`.

A block runs unless the line above it says `<!-- not run: why -->`. What it prints is compared with nothing: the Python
of the pages asserts what they claim.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.docs.markdown_pages import DOCS, TOP, blocks, code_spans

NOTEBOOK = "5-look-at-a-run.ipynb"
# What `make venv` has set up is not to be set up again, and `rla` is the one of this path.
MAKE_RUN = 'make --assume-old=.venv/.run BIN="$(dirname "$(command -v rla)")" run'
RECORD = "docs/results/records/ablation-valid-unseen.json.gz"
# Command of the README -> what runs in its place, in this order.
README = {
    "make run ITERATIONS=2": f"{MAKE_RUN} ITERATIONS=2",
    "make run": f"{MAKE_RUN} ITERATIONS=2",  # goes on; twelve iterations take minutes
    "rla init mine": "rla init mine",
    "cd mine && rla run --iterations 2": "cd mine && cp ../params.yaml . && rla run --iterations 1",
    "rla show --worst": "rla show --worst",
    "rla view": "rla view --bundle site",  # a viewer would serve until Ctrl-C
    "rla compare runs/one runs/other": "rla compare runs/alfworld-tiny mine/runs/alfworld-tiny",
    "rla envs": "rla envs",
    "rla envs --check mine": "rla envs --check alfworld",  # test_tutorial_environment.py has one of its own
    "rla rollout --env mine": "rla rollout --env alfworld --run runs/other",
    f"rla ablation report --with {RECORD}": f"rla ablation report --with {TOP / RECORD}",
}
README_NOT_RUN = {
    "make run PARAMS=pipelines/alfworld-laptop.yaml": "two hours; test_real_model.py turns a short iteration",
    "make docs": "test_site.py builds the site",
    "make test": "it runs this test",
    "uv pip install --torch-backend=cpu . ./packages/rla-study": "test_outside_environment.py installs the wheels",
    "make venv PACKAGES=study-inspect": "the environment of the tests has it",
    ". .venv/bin/activate": "the tests have it on their path",
}
PAGES = ("1-first-run.md", "2-read-a-trajectory.md", "3-change-the-credit.md")
COPIED = ("Makefile", "dvc.yaml", "pyproject.toml", "constraints.txt", ".dvc", ".dvcignore")
SMALLER = {  # what makes the run of the first page short; all else is as in params.yaml
    "env": {"max_steps": 6},
    "tasks": {"train_scenes": 4, "test_scenes": 2},
    "model": {"hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 32},
    "generator": {"backend": "scripted"},
    "rollout": {"tasks_per_iteration": 4, "rollouts_per_task": 4},
    "train_policy": {"updates": 1},
    "train_rm": {"updates": 1},
    "launch": {"threads": 1},
    "warm_start": {"enabled": False},
    "evaluation": {"rollouts_per_task": 1, "max_steps": 6},
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like a clone after `make venv`."""
    folder = tmp_path_factory.mktemp("clone")
    for name in COPIED:
        copy = shutil.copytree if (TOP / name).is_dir() else shutil.copy2
        copy(TOP / name, folder / name)
    params = yaml.safe_load((TOP / "params.yaml").read_text())
    for section, keys in SMALLER.items():
        params[section] = params.get(section, {}) | keys
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.fixture(scope="module")
def shell(forking: Path) -> dict[str, str]:
    """The environment of a reader's shell."""
    path = os.pathsep.join((str(forking), str(Path(sys.executable).parent), os.environ["PATH"]))
    return os.environ | {"PATH": path, "PYTHONPATH": str(TOP), "OMP_NUM_THREADS": "1", "DVC_NO_ANALYTICS": "1"}


def bash(script: str, folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def cells() -> list[dict[str, Any]]:
    """The cells of the notebook that hold code."""
    notebook = json.loads((DOCS / "tutorial" / NOTEBOOK).read_text())
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_tutorials_run_in_order(clone: Path, shell: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages, then the notebook, on the run of the first page."""
    monkeypatch.chdir(clone)
    for name in PAGES:
        session: dict[str, object] = {"__name__": "__main__"}  # one Python session a page
        for block in blocks((DOCS / "tutorial" / name).read_text()):
            if not block.runs:
                continue
            if block.language == "bash":
                bash(block.text.replace("make run", MAKE_RUN), clone, shell)
            elif block.language == "python":
                exec(compile(block.text, name, "exec"), session)
    script = "\n".join("".join(cell["source"]) for cell in cells())
    (clone / "notebook.py").write_text(f"{script}\nfigure.savefig('notebook.png')\n")
    bash("MPLBACKEND=agg python notebook.py", clone, shell)
    assert (clone / "notebook.png").stat().st_size > 10_000


def test_the_notebook_holds_no_outputs() -> None:
    assert cells() and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells())


def commands_of(page: str) -> set[str]:
    """The command lines of the blocks, without comments, and those that stand in running text."""
    lines = [line for block in blocks(page) if block.language == "bash" for line in block.text.splitlines()]
    spans = [span for span in code_spans(page) if span.split()[0] in ("make", "pip", "rla") and " " in span]
    return {line.partition("  #")[0].strip() for line in [*lines, *spans]}


def test_every_command_of_the_readme_runs_or_says_why_not(clone: Path, shell: dict[str, str]) -> None:
    assert commands_of((TOP / "README.md").read_text()) == README.keys() | README_NOT_RUN.keys()
    for command in dict.fromkeys(README.values()):
        bash(command, clone, shell)
