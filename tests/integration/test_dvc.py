"""dvc.yaml under DVC itself, with a program in place of `rla` that only writes the files of each stage."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rla.pipeline.plan import Plan, write_plan
from rla.pipeline.run import ready_dvc
from rla.report.curves import Line, Panel, svg
from rla.store.layout import resource
from stages import STAGES

pytestmark = pytest.mark.usefixtures("forked_python")

# Outputs depend on stage and iteration; rewards, and all that follows from them but figures, also on their parameter.
PROGRAM = r"""#!/usr/bin/env bash
set -euo pipefail
stage=$1; shift; iteration=1
while [ $# -gt 0 ]; do
  case $1 in --run) run=$2; shift;; --iteration) iteration=$2; shift;; esac
  shift
done
echo "$stage@$iteration" >> calls
make() {
  for name in "$@"; do mkdir -p "$run/$name"; echo "$stage $iteration" > "$run/$name/_manifest.parquet"; done
}
train() {
  for name in "$@"; do
    mkdir -p "$run/$name/model" "$run/$name/state"
    echo "$stage $iteration $(cat "$run/$iteration/rewards/_manifest.parquet" 2>/dev/null || true)" | tee \
      "$run/$name/model/weights" "$run/$name/state/weights" > "$run/$name/checkpoint.json"
  done
}
case $stage in
  make-tasks) make 0/pool test/pool;;
  init-model) make init;;
  warm-start) iteration=0; train 0/policy 0/rm;;
  rollout) make "$iteration/trajectories";;
  score-steps) make "$iteration/scores";;
  validate-tasks) make "$iteration/verdicts" "$iteration/standings" "$iteration/pool";;
  compute-rewards)
    make "$iteration/rewards"
    grep step_weight params.yaml > "$run/$iteration/rewards/_manifest.parquet"
    echo '{"success": 0.5}' > "$run/$iteration/metrics.json";;
  train-policy) train "$iteration/policy";;
  train-rm) train "$iteration/rm";;
  adapt-env) make "$iteration/candidates";;
  evaluate)
    make "eval/$iteration/trajectories"
    cp "$run/$iteration/policy/checkpoint.json" "$run/eval/$iteration/trajectories/_manifest.parquet"
    echo '{}' > "$run/eval/$iteration/metrics.json";;
  report)
    mkdir -p "$run/report/curves"
    cp success.svg "$run/report/curves"
    sed 's/.*step_weight: *\(.*\)/{"held_out": 0.5, "gain": 0.1, "weight": \1}/' \
      "$run/1/rewards/_manifest.parquet" > "$run/report/metrics.json";;
esac
"""


class Pipeline:
    """A folder in which `dvc repro` runs the program above."""

    def __init__(self, folder: Path, *, git: bool = False) -> None:
        self.folder = folder
        for name in ("dvc.yaml", "params.yaml"):
            shutil.copy(resource(name), folder)
        program = folder / "bin/rla"
        program.parent.mkdir()
        program.write_text(PROGRAM)
        program.chmod(0o755)
        drawn = Panel(name="success", title="Success", lines=(Line(label="held out", x=(1, 2), y=(0.25, 0.5)),))
        (folder / "success.svg").write_text(svg(drawn))
        if git:
            (folder / ".gitignore").write_text("/runs/\n/calls\n")
            for command in (["init", "--quiet"], ["config", "user.email", "a@b.c"], ["config", "user.name", "a"]):
                subprocess.run(["git", *command], cwd=folder, check=True)
        self.dvc("init", "--quiet", *([] if git else ["--no-scm"]))
        self.plan(1)

    def plan(self, iterations: int) -> None:
        plan = Plan(iterations=iterations, params=self.folder / "params.yaml", run=Path("runs/t"))
        write_plan(plan, self.folder / "iterations.yaml", stages=STAGES)

    def dvc(self, *arguments: str) -> str:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [sys.executable, "-m", "dvc", *arguments],
            cwd=self.folder,
            env=os.environ | {"PATH": path, "DVC_NO_ANALYTICS": "1"},
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        # What is plotted and not written, or cannot be read.
        assert not re.search("could not find|WARNING: In 'workspace'", done.stderr, re.IGNORECASE), done.stderr
        return done.stdout

    def repro(self, *arguments: str) -> list[str]:
        """The stages that `dvc repro` called, as `<stage>@<iteration>`, sorted."""
        (self.folder / "calls").unlink(missing_ok=True)
        self.dvc("repro", *arguments)
        calls = self.folder / "calls"
        return sorted(calls.read_text().split()) if calls.exists() else []

    def set(self, key: str, value: float) -> None:
        path = self.folder / "params.yaml"
        text, count = re.subn(rf"(?m)^(\s+{key}:).*$", rf"\1 {value}", path.read_text())
        assert count == 1
        path.write_text(text)


LOOP = (
    "adapt-env",
    "compute-rewards",
    "rollout",
    "score-steps",
    "train-policy",
    "train-rm",
    "validate-tasks",
)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    made = Pipeline(tmp_path_factory.mktemp("dvc"))
    loop = [f"{stage}@1" for stage in LOOP]
    ends = ["evaluate@0", "evaluate@1", "init-model@1", "make-tasks@1", "report@1", "warm-start@1"]
    assert made.repro() == sorted([*loop, *ends])
    return made


def test_nothing_changed_nothing_runs(pipeline: Pipeline) -> None:
    assert pipeline.repro() == []


def test_weights_that_are_gone_make_nothing_run(pipeline: Pipeline) -> None:
    for number, model in ((0, "policy"), (0, "rm"), (1, "policy"), (1, "rm")):
        for part in ("model", "state"):
            shutil.rmtree(pipeline.folder / f"runs/t/{number}/{model}/{part}")
    assert pipeline.repro() == []


def test_dvc_reads_records_and_no_weights(pipeline: Pipeline) -> None:
    lock = yaml.safe_load((pipeline.folder / "dvc.lock").read_text())["stages"].values()
    paths = {entry["path"] for stage in lock for key in ("deps", "outs") for entry in stage.get(key, [])}
    trained = {path for path in paths if re.search("/(policy|rm)(/|$)", path)}
    assert trained == {f"runs/t/{i}/{model}/checkpoint.json" for i in (0, 1) for model in ("policy", "rm")}


def test_a_section_that_no_stage_reads_and_what_a_package_writes_make_nothing_run(pipeline: Pipeline) -> None:
    folder = pipeline.folder / "runs/t/harvest/train-policy"
    folder.mkdir(parents=True)
    (folder / "barn").write_text("")
    with (pipeline.folder / "params.yaml").open("a") as params:
        params.write("\nguards: {stop: []}\n")
    assert pipeline.repro() == []


def test_one_stage_alone(pipeline: Pipeline) -> None:
    assert pipeline.repro("--force", "--single-item", "score-steps@1") == ["score-steps@1"]


def test_more_iterations_leave_the_first_alone(pipeline: Pipeline) -> None:
    pipeline.plan(2)
    assert pipeline.repro() == sorted([*(f"{stage}@2" for stage in LOOP), "evaluate@2", "report@1"])


def test_a_parameter_reruns_what_depends_on_it(pipeline: Pipeline) -> None:
    pipeline.set("step_weight", 0.123)
    changed = json.loads(pipeline.dvc("status", "--json"))
    assert {name.partition("@")[0] for name in changed} == {"score-steps", "compute-rewards"}
    for stage in ("score-steps@1", "compute-rewards@1"):
        assert pipeline.repro("--single-item", stage) == [stage]
    changed = json.loads(pipeline.dvc("status", "--json"))
    assert {name for name in changed if name.endswith("@1")} == {"train-policy@1", "train-rm@1"}


def test_metrics_and_plots_come_from_the_report(pipeline: Pipeline) -> None:
    shown = json.loads(pipeline.dvc("metrics", "show", "--json"))[""]["data"]
    assert shown["runs/t/report/metrics.json"]["data"] == {"held_out": 0.5, "gain": 0.1, "weight": 1.0}
    assert "index.html" in pipeline.dvc("plots", "show")
    page = (pipeline.folder / "dvc_plots/index.html").read_text()
    (picture,) = re.findall('<img src="([^"]*)">', page)
    assert "<svg" in (pipeline.folder / "dvc_plots" / picture).read_text()
    assert "//" not in page and "<script" not in page  # nothing comes from the network


def test_a_stage_that_fails_leaves_what_lies_there(tmp_path: Path) -> None:
    """A stage refuses, or cannot be started at all: its outputs stay, and with them what is somebody's own."""
    made = Pipeline(tmp_path)
    assert made.repro("init-model") == ["init-model@1", "make-tasks@1"]
    (tmp_path / "runs/t/init/thesis.md").write_text("mine")
    made.set("hidden_size", 48)
    (tmp_path / "bin/rla").write_text("#!/bin/sh\nexit 2\n")
    with pytest.raises(AssertionError, match="failed to reproduce 'init-model'"):
        made.dvc("repro", "init-model")
    assert sorted(path.name for path in (tmp_path / "runs/t/init").iterdir()) == ["_manifest.parquet", "thesis.md"]


def test_every_experiment_keeps_its_figures(tmp_path: Path) -> None:
    """The figures of the evaluation are equal, as those of a small run may be: the report is made anew all the same."""
    made = Pipeline(tmp_path, git=True)
    for command in (["add", "--all"], ["commit", "--quiet", "--message", "start"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    for name, weight in (("half", 0.5), ("more", 0.7)):
        made.dvc("exp", "run", "--name", name, "--set-param", f"credit.step_weight={weight}")
    shown = json.loads(made.dvc("exp", "show", "--json"))
    experiments = [one for entry in shown for one in entry["experiments"] or ()]
    kept = {one["name"]: list(one["revs"][0]["data"]["metrics"].values()) for one in experiments}
    assert {name: found["data"]["weight"] for name, (found,) in kept.items()} == {"half": 0.5, "more": 0.7}


def test_a_run_in_a_clone_changes_nothing_that_git_follows(tmp_path: Path) -> None:
    clone, top = Pipeline(tmp_path), Path(__file__).resolve().parents[2]
    for name in (".gitignore", ".dvcignore", ".dvc/.gitignore", ".dvc/config"):
        shutil.copy(top / name, tmp_path / name)
    with (tmp_path / ".gitignore").open("a") as ignored:
        ignored.write("/calls\n")
    named = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for command in (("init", "--quiet"), ("add", "--all"), (*named, "commit", "--quiet", "-m", "a")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    ready_dvc(tmp_path)
    assert len(clone.repro()) == len(LOOP) + 6
    status = subprocess.run(["git", "status", "--short"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert status.stdout == ""
