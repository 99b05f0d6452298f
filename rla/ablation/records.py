"""What arms and seeds came to as one file, so that seeds that other machines ran count in the same tables.

{"format": 1, "arms": {NAME: {"parameters": {dotted key: value}, "runs": [
  {"seed": 3, "split": "valid_seen", "hours": 0.4,
   "evaluations": {"8": {TASK: "011001"}},         whether each episode was won
   "further": {SPLIT: {"8": {TASK: "110100"}}},    on the other held-out splits
   "iterations": [{"iteration": 1, "mu": 1.2}],    numbers alone; of nested metrics the name has dots
   "measured": {"8": {"success": 0.4}}}]}}}

Parameters that change nothing, the seed, and places of files may differ from one machine to another. All others have
to be equal, and nine of ten held-out tasks of an arm have to be those of the other runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.ablation.design import PLACES, Arm, Design
from rla.ablation.measures import numbers_of
from rla.ablation.outcomes import ArmOutcome, RunOutcome, Wins
from rla.config.differences import flattened, parameter_differences
from rla.config.load import effective_parameters
from rla.envs.configured import from_mapping
from rla.errors import UserError
from rla.store.atomic import write_text

FORMAT = 1
SHARED = 0.9  # of the held-out tasks of two runs: an environment that breaks a task costs one of them
WRONG = (KeyError, TypeError, ValueError, AttributeError)


def write_record(path: Path, design: Design, arms: Sequence[ArmOutcome]) -> None:
    """Write the file; one that is there is replaced."""
    content = {
        found.arm.name: {
            "parameters": arm_parameters(design, found.arm),
            "runs": [run_as_json(run) for run in found.runs],
        }
        for found in arms
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"format": FORMAT, "arms": content}, sort_keys=True) + "\n")


def with_records(design: Design, arms: Sequence[ArmOutcome], paths: Sequence[Path]) -> list[ArmOutcome]:
    """The arms with the runs of these files, each arm's in the order of seeds.

    Raises UserError, which names the file: for one that is no record, other parameters, a seed that is there already,
    and for an arm that the design does not have or that had other held-out tasks.
    """
    found = {arm.arm.name: arm for arm in arms}
    for path in paths:
        for name, (parameters, runs) in read_record(path).items():
            if name not in found:
                raise UserError(f"{path}: no arm {name}; the design has {', '.join(found)}")
            refuse_other_parameters(path, name, parameters, arm_parameters(design, found[name].arm))
            found[name] = replace(found[name], runs=joined_runs(path, found[name], runs))
    return list(found.values())


def arm_parameters(design: Design, arm: Arm) -> dict[str, Any]:
    """Dotted key -> value, of those that decide what an arm comes to: a model's name on a hub does, a path does not."""
    config = from_mapping(design.params(arm), where=f"arm {arm.name}")
    flat = flattened(effective_parameters(config))
    local = {key for key in PLACES if Path(str(flat.get(key) or "")).is_absolute()}
    kept = {key: value for key, value in flat.items() if key != "seed" and key not in local}
    return kept | {"arm.curated": arm.curated, "arm.own_tasks": arm.own_tasks}


def refuse_other_parameters(path: Path, name: str, recorded: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    if differences := parameter_differences(recorded, known):
        key, (old, new) = next(iter(differences.items()))
        raise UserError(f"{path}: arm {name} was run with {key} {old}, and the design has {new}; give the same --set")


def joined_runs(path: Path, arm: ArmOutcome, runs: Sequence[RunOutcome]) -> tuple[RunOutcome, ...]:
    joined = sorted((*arm.runs, *runs), key=lambda run: run.seed)
    seeds = [run.seed for run in joined]
    if twice := sorted(seed for seed in set(seeds) if seeds.count(seed) > 1):
        raise UserError(f"{path}: seed {twice[0]} of arm {arm.arm.name} is there already; name each record once")
    for split in sorted({name for run in joined for name in run.further} | {""}):
        evaluated = [run.further.get(split, {}) if split else run.evaluations for run in joined]
        tasks = [frozenset(wins) for points in evaluated for wins in points.values()]
        if tasks and len(frozenset.intersection(*tasks)) < SHARED * len(frozenset().union(*tasks)):
            raise UserError(
                f"{path}: arm {arm.arm.name} was evaluated on other tasks {f'of {split} ' * bool(split)}than here; "
                "make the same ones on each machine"
            )
    return tuple(joined)


def run_as_json(run: RunOutcome) -> dict[str, Any]:
    """See above."""
    rows = [{**finite_numbers(row), "iteration": row["iteration"]} for row in run.iterations]
    return {
        "seed": run.seed,
        "split": run.split,
        "hours": run.hours,
        "evaluations": wins_as_json(run.evaluations),
        "further": {split: wins_as_json(points) for split, points in run.further.items()},
        "iterations": rows,
        "measured": {str(point): finite_numbers(row) for point, row in run.measured.items()},
    }


def finite_numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in numbers_of(row).items() if math.isfinite(value)}


def wins_as_json(points: Mapping[int, Wins]) -> dict[str, dict[str, str]]:
    return {
        str(point): {task: "".join("01"[win] for win in won) for task, won in wins.items()}
        for point, wins in points.items()
    }


def read_record(path: Path) -> dict[str, tuple[dict[str, Any], list[RunOutcome]]]:
    """Arm -> its parameters and runs. Raises UserError for a file of another kind."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError
        return {
            name: (dict(arm["parameters"]), [run_from_json(run) for run in arm["runs"]])
            for name, arm in content["arms"].items()
        }
    except FileNotFoundError:
        raise UserError(f"{path}: no such record; `rla ablation report --record FILE` writes one") from None
    except WRONG:
        raise UserError(f"{path}: no record of an ablation; `rla ablation report --record FILE` writes one") from None


def run_from_json(run: Mapping[str, Any]) -> RunOutcome:
    return RunOutcome(
        seed=int(run["seed"]),
        split=str(run["split"]),
        hours=float(run["hours"]),
        evaluations=wins_from_json(run["evaluations"]),
        further={split: wins_from_json(points) for split, points in run["further"].items()},
        iterations=tuple(dict(row) for row in run["iterations"]),
        measured={int(point): dict(row) for point, row in run["measured"].items()},
    )


def wins_from_json(points: Mapping[str, Mapping[str, str]]) -> dict[int, Wins]:
    return {
        int(point): {task: [bool("01".index(win)) for win in won] for task, won in wins.items()}
        for point, wins in points.items()
    }
