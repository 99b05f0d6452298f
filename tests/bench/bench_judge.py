"""`bench-judge RUN=runs/name`: what `judge.tasks: training` saves on the stored iterations of a run.

    python -m tests.bench.bench_judge --run runs/name [--params params.yaml] [--set key=value] [--timed]

For each iteration: the steps that were played, those that would be judged, and how many of these for which reason. With
`--timed`, `score-steps` runs on every iteration both ways, in turn, with the engine of the params, into a folder that
is thrown away; its wall time includes the start of the engine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rla.adaptation.acceptance import measured_accuracies
from rla.adaptation.selection import PLAYED, episodes_to_judge, trains_a_model
from rla.cli.progress import make_progress
from rla.config import Config
from rla.envs.registry import load_config
from rla.pipeline import StageContext
from rla.store.layout import artifact, numbered_folders
from rla.store.manifest import MANIFEST
from rla.store.reading import read_rows, stream_rows
from stages import STAGES

WAYS = ("all", "training")


def context(run: Path, iteration: int, config: Config) -> StageContext:
    spec = next(spec for spec in STAGES if spec.name == "score-steps")
    return StageContext(spec=spec, stages=STAGES, config=config, run=run, iteration=iteration, progress=make_progress())


def counted(ctx: StageContext) -> dict[str, int]:
    """Steps by what becomes of them."""
    columns = (*PLAYED, "steps.list.element.valid")
    played = list(stream_rows(ctx.path("trajectories"), "trajectories", columns))
    verdicts = read_rows(ctx.path("verdicts"), "verdicts", ["task_id", "accepted"])
    rejected = {row["task_id"] for row in verdicts if not row["accepted"]}
    accuracies, judged = measured_accuracies(played), episodes_to_judge(ctx)
    found = dict.fromkeys(("steps", "judged", "of them trains", "rejected", "one-sided"), 0)
    for row in played:
        steps, task = len(row["steps"]), row["task_id"]
        found["steps"] += steps
        found["judged"] += steps * (row["trajectory_id"] in judged)
        if task not in accuracies:
            continue
        useful = trains_a_model(accuracies[task][0], ctx.config.credit)
        found["of them trains"] += steps * (useful and task not in rejected)
        found["rejected"] += steps * (task in rejected)
        found["one-sided"] += steps * (not useful and task not in rejected)
    return found


def seconds(run: Path, iteration: int, params: Path | None, overrides: list[str], way: str) -> float:
    """The wall time of one call of `score-steps`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "rla", "score-steps", "--run", str(run), "--iteration", str(iteration)]
        command += ["--out", f"{folder}/scores", *(["--params", str(params)] if params else [])]
        command += [word for text in (*overrides, f"judge.tasks={way}") for word in ("--set", text)]
        started = time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--params", type=Path)
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--timed", action="store_true")
    options = parser.parse_args()
    config = load_config(options.params, options.overrides)
    config = replace(config, judge=replace(config.judge, tasks="training"))
    total: dict[str, int] = {}
    spent = dict.fromkeys(WAYS, 0.0)
    for iteration in numbered_folders(options.run):
        if iteration < 1 or not (artifact(options.run, "verdicts", iteration) / MANIFEST).exists():
            continue
        found = counted(context(options.run, iteration, config))
        total = {key: total.get(key, 0) + value for key, value in found.items()}
        print(f"iteration {iteration}:", ", ".join(f"{key} {value}" for key, value in found.items()))
        for way in WAYS if options.timed else ():
            spent[way] += seconds(options.run, iteration, options.params, options.overrides, way)
    if not total:
        sys.exit(f"{options.run}: no iteration with verdicts; give a run that has been played")
    share = total["judged"] / max(total["steps"], 1)
    print(f"in all: {total['judged']} of {total['steps']} steps are judged ({share:.0%}), {1 - share:.0%} are saved")
    if options.timed:
        print(f"score-steps: all {spent['all']:.1f} s, training {spent['training']:.1f} s")


if __name__ == "__main__":
    main()
