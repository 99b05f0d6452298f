"""Two arms with one seed each from one start, as DVC pipelines of their own; a second call finds all of it done."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from rla_study.ablation.comparison import write_report
from rla_study.ablation.design import load_design
from rla_study.ablation.folders import arm_folder, start_folder
from rla_study.ablation.run import COMMAND, run_ablation

from rla.errors import UserError
from tests.integration.pipelines import PARAMS, environment, until

DESIGN = {
    "params": "shared.yaml",
    "iterations": 1,
    "evaluate_every": 0,
    "seeds": [5],
    "baseline": "outcome",
    "arms": {
        "outcome": {
            "set": {
                "credit": {"estimator": "outcome"},
                "judge": {"enabled": False},
                "train_rm": {"enabled": False},
                "adaptation": {"enabled": False},
            }
        },
        "full": {},
    },
}


# A loop imports at its start what all stages need, which would take longer than the stages up to the kill.
BARE_LOOP = (*COMMAND[:-1], f"import rla.pipeline.run; rla.pipeline.run.PRELOADED = (); {COMMAND[-1]}")
CALL = """
import sys
from rla.cli.app import run
from rla_study.ablation import run as ablation
ablation.COMMAND = sys.argv[1:]
sys.exit(run("ablation run --design ablation.yaml --root runs --jobs 2".split()))
"""


def test_arms_share_their_start_and_go_on_where_they_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forking: Path
) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    (tmp_path / "shared.yaml").write_text(PARAMS)
    (tmp_path / "ablation.yaml").write_text(yaml.safe_dump(DESIGN))
    design, root = load_design(tmp_path / "ablation.yaml"), tmp_path / "runs"
    ended(tmp_path, signal.SIGKILL, BARE_LOOP, during="rla make-tasks")
    assert not (start_folder(root) / "run" / "0" / "pool").exists()
    assert "rla init-model" not in (start_folder(root) / "repro.log").read_text()
    forked_loop = (str(forking / "loop"),)
    ended(tmp_path, signal.SIGTERM, forked_loop, during="rla rollout")
    said: list[str] = []
    monkeypatch.setattr("rla_study.ablation.run.COMMAND", forked_loop)
    run_ablation(design, root, jobs=2, say=said.append)
    assert len(said) == 3
    assert "rla init-model" in (start_folder(root) / "repro.log").read_text()
    runs = [arm_folder(root, arm, 5) / "run" for arm in design.arms]
    start = start_folder(root) / "run" / "0" / "policy" / "checkpoint.json"
    assert {(run / "0" / "policy" / "checkpoint.json").stat().st_ino for run in runs} == {start.stat().st_ino}
    made = {path: path.stat().st_mtime_ns for run in runs for path in run.rglob("*.parquet")}
    run_ablation(design, root, jobs=1, only=["full"], say=said.append)
    assert made == {path: path.stat().st_mtime_ns for run in runs for path in run.rglob("*.parquet")}
    text = write_report(design, root)
    with pytest.raises(UserError, match="no arm has been evaluated at iteration 7; there is 1"):
        write_report(design, root, at=[7])
    assert text.count("| 1 | 1 |") == 2
    assert "| full |" in text and "| outcome |" in text


def ended(folder: Path, by: signal.Signals, loop: Sequence[str], *, during: str) -> None:
    """An ablation that is ended takes all along that it has started."""
    call = subprocess.Popen([sys.executable, "-c", CALL, *loop], cwd=folder, stderr=subprocess.DEVNULL)

    def reached() -> bool:  # without a look into the runs, whose folders come and go
        logs = [*folder.glob("runs/*/repro.log"), *folder.glob("runs/*/seed*/repro.log")]
        return any(during in log.read_text() for log in logs)

    until(reached, seconds=120)
    call.send_signal(by)
    call.wait(30)
    until(lambda: not any(commands(folder)), seconds=120)


def commands(folder: Path) -> Iterator[str]:
    """The command lines of the processes that work below `folder`."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve().is_relative_to(folder):
                yield (process / "cmdline").read_text().replace("\0", " ")
        except OSError:
            pass  # it has ended
