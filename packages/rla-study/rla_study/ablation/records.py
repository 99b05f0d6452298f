"""The results of arms and seeds in one file, so that tables can include seeds that ran on other machines.

    {"format": 1, "arms": {NAME: {"parameters": {dotted key: value}, "runs": [
      {"seed": 3, "split": "valid_seen", "hours": 0.4,
       "evaluations": {"8": {TASK: "011001"}},         whether each episode was won
       "further": {SPLIT: {"8": {TASK: "110100"}}},    on the other held-out splits
       "iterations": [{"iteration": 1, "mu": 1.2}],    numbers only; nested metrics have dots in their names
       "measured": {"8": {"success": 0.4}}}]}}}

The parameters are those of the runs. Parameters without effect, a run's seed and paths of files may differ between
machines. All others have to be equal, and any two runs must share nine of ten held-out tasks.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.config.load import effective_parameters
from rla.config.schema import flattened, parameter_differences, shown_value
from rla.envs.registry import from_mapping
from rla.errors import UserError
from rla.store.atomic import write_content
from rla_study.ablation.design import Arm, Design, read_mapping
from rla_study.ablation.folders import arm_folder
from rla_study.ablation.measures import numbers_of
from rla_study.ablation.outcomes import ArmOutcome, RunOutcome, Wins
from rla_study.ablation.starts import start_folder, starts_of

FORMAT = 1
PACKED = ".gz"  # file names that end so are compressed, to a fifth of the size
SHARED = 0.9  # of the held-out tasks of two runs; a task that the environment broke in one run is missing there
# Parameters in which runs of an arm may differ.
OWN: tuple[str, ...] = ("seed", "tasks.path", "warm_start.conversations", "env.own.test_path")
OWN += ("env.own.folder", "env.own.files", "env.own.osworld_python")
MODELS = ("model.policy", "model.reward", "adaptation.llm.model")
LOCAL = "a local folder"  # stands for a model's path; a model on a hub keeps its name, which identifies it
WRONG = (KeyError, TypeError, ValueError, AttributeError, EOFError, gzip.BadGzipFile, zlib.error)


def write_ablation_record(path: Path, design: Design, root: Path, arms: Sequence[ArmOutcome]) -> None:
    """Write the file, replacing an existing one. `root`: the folder of the runs that do not come from a record. Raises
    UserError if the runs of an arm have different parameters.
    """
    content = {}
    for found in arms:
        parameters = _shared_parameters(design, root, found)
        content[found.arm.name] = {"parameters": parameters, "runs": [_run_as_json(run) for run in found.runs]}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (json.dumps({"format": FORMAT, "arms": content}, sort_keys=True) + "\n").encode()
    write_content(path, gzip.compress(text, mtime=0) if path.suffix == PACKED else text)


def with_records(design: Design, root: Path, arms: Sequence[ArmOutcome], paths: Sequence[Path]) -> list[ArmOutcome]:
    """The arms together with the runs in these files; each arm's runs are in the order of seeds. An arm that is
    no longer in the design comes after the others.

    Raises UserError if a file is not a record, a seed is there twice, the held-out tasks differ from those of the other
    runs, or two runs of an arm have different parameters.
    """
    found = {arm.arm.name: arm for arm in arms}
    for path in paths:
        for name, runs in read_record(path).items():
            lost = Arm(name=name, title=f"{name} (not in the design)", changes={})
            arm = found.get(name) or ArmOutcome(arm=lost, runs=(), own_starts=design.start_per_seed)
            found[name] = replace(arm, runs=_joined_runs(path, arm, runs))
    for arm in found.values() if paths else ():
        _shared_parameters(design, root, arm)
    return list(found.values())


def _shared_parameters(design: Design, root: Path, found: ArmOutcome) -> dict[str, Any]:
    """The parameters that all runs of an arm share. Raises UserError if two runs differ."""
    first: dict[str, Any] = {}
    for run in found.runs:
        other = dict(run.parameters) or _ran_with(design, root, found.arm, run.seed)
        if first and (differences := parameter_differences(first, other)):
            key, (one, another) = next(iter(differences.items()))
            raise UserError(
                f"arm {found.arm.name}: seed {found.runs[0].seed} was run with {key} {shown_value(one)}, and seed "
                f"{run.seed} with {shown_value(another)}; runs of one arm share all parameters that matter"
            )
        first = first or other
    return first


def _ran_with(design: Design, root: Path, arm: Arm, seed: int) -> dict[str, Any]:
    """Dotted key -> value, for the parameters in a run's folder and everything else that decides its result."""
    file = arm_folder(root, arm, seed) / "params.yaml"
    start = start_folder(root, starts_of(design, arm, seed)[-1]) / "params.yaml"
    given, begun = (read_mapping(one, remedy="run `rla ablation run` again") for one in (file, start))
    flat = flattened(effective_parameters(from_mapping(given, where=str(file))))
    local = {key: LOCAL for key in MODELS if Path(str(flat.get(key) or "")).is_absolute()}
    more = {"arm.curated": arm.curated, "arm.own_tasks": arm.own_tasks}
    more |= {} if design.start_per_seed else {"start.seed": begun.get("seed", 0)}
    return {key: value for key, value in (flat | local | more).items() if key not in OWN}


def _joined_runs(path: Path, arm: ArmOutcome, runs: Sequence[RunOutcome]) -> tuple[RunOutcome, ...]:
    joined = sorted((*arm.runs, *runs), key=lambda run: run.seed)
    seeds = [run.seed for run in joined]
    if twice := sorted(seed for seed in set(seeds) if seeds.count(seed) > 1):
        raise UserError(f"{path}: seed {twice[0]} of arm {arm.arm.name} is there already; name each record once")
    for split in sorted({name for run in joined for name in run.further} | {""}):
        tasks = [found for run in joined if (found := tasks_of(run, split))]
        if any(len(tasks[0] & other) < SHARED * len(tasks[0] | other) for other in tasks):
            raise UserError(
                f"{path}: arm {arm.arm.name} was evaluated on other tasks {f'of {split} ' * bool(split)}than here; "
                "make the same ones on each machine"
            )
    return tuple(joined)


def tasks_of(run: RunOutcome, split: str) -> frozenset[str]:
    """The held-out tasks of a run; `split`: empty for the main one."""
    points = run.further.get(split, {}) if split else run.evaluations
    return frozenset(task for wins in points.values() for task in wins)


def _run_as_json(run: RunOutcome) -> dict[str, Any]:
    """A run in the form that the module's docstring shows."""
    rows = [{**_finite_numbers(row), "iteration": row["iteration"]} for row in run.iterations]
    return {
        "seed": run.seed,
        "split": run.split,
        "hours": run.hours,
        "evaluations": _wins_as_json(run.evaluations),
        "further": {split: _wins_as_json(points) for split, points in run.further.items()},
        "iterations": rows,
        "measured": {str(point): _finite_numbers(row) for point, row in run.measured.items()},
    }


def _finite_numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in numbers_of(row).items() if math.isfinite(value)}


def _wins_as_json(points: Mapping[int, Wins]) -> dict[str, dict[str, str]]:
    return {
        str(point): {task: "".join("01"[win] for win in won) for task, won in wins.items()}
        for point, wins in points.items()
    }


def read_record(path: Path) -> dict[str, list[RunOutcome]]:
    """Arm -> its runs. Raises UserError if the file is not a record, or is damaged."""
    try:
        stored = path.read_bytes()
        content = json.loads(gzip.decompress(stored) if path.suffix == PACKED else stored)
        if content["format"] != FORMAT:
            raise ValueError
        return {
            name: [_run_from_json(run, dict(arm["parameters"])) for run in arm["runs"]]
            for name, arm in content["arms"].items()
        }
    except FileNotFoundError:
        raise UserError(f"{path}: no such record; `rla ablation report --record FILE` writes one") from None
    except WRONG:
        raise UserError(
            f"{path}: not a record of an ablation; `rla ablation report --record FILE` writes one"
        ) from None


def _run_from_json(run: Mapping[str, Any], parameters: Mapping[str, Any]) -> RunOutcome:
    """Raises ValueError, or another of WRONG, if the content does not have the form that was written."""
    return RunOutcome(
        seed=int(run["seed"]),
        split=str(run["split"]),
        hours=float(run["hours"]),
        evaluations=_wins_from_json(run["evaluations"]),
        further={split: _wins_from_json(points) for split, points in run["further"].items()},
        iterations=tuple(_numbers_from_json(row) | {"iteration": int(row["iteration"])} for row in run["iterations"]),
        measured={int(point): _numbers_from_json(row) for point, row in run["measured"].items()},
        parameters=parameters,
    )


def _numbers_from_json(row: Mapping[str, Any]) -> dict[str, float]:
    if not all(type(value) in (int, float) and math.isfinite(value) for value in row.values()):
        raise ValueError
    return dict(row)


def _wins_from_json(points: Mapping[str, Mapping[str, str]]) -> dict[int, Wins]:
    if not all(wins and all(wins.values()) for wins in points.values()):
        raise ValueError
    return {
        int(point): {task: [bool("01".index(win)) for win in won] for task, won in wins.items()}
        for point, wins in points.items()
    }
