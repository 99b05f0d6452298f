"""The runs to compare. Runs that differ only in their seed form one arm."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from rla.config import effective_parameters, resolved
from rla.config.schema import ABSENT, flattened, parameter_differences, shown_value
from rla.envs.registry import default_config
from rla.errors import UserError
from rla.pipeline.plan import existing_run, runs_text, stored_runs
from rla.report.collect import RunSummary, collect
from rla.store.manifest import read_run_config
from rla.text import one_line
from rla_study.ablation.design import Arm
from rla_study.ablation.outcomes import ArmOutcome, RunOutcome, Wins, outcome_of

SEED = "seed"
LONGEST_NAME = 200  # characters
OF_SEED = re.compile(r"([/_.-]*seed)?[/_.=-]*\d*$")  # the end of a name that numbers seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """`name`: one printable line. `params`: dotted key -> value, for the keys that outputs depend on."""

    name: str
    summary: RunSummary
    outcome: RunOutcome
    params: Mapping[str, Any]

    def evaluations(self, split: str) -> Mapping[int, Wins]:
        return self.outcome.evaluations if split == self.outcome.split else self.outcome.further.get(split, {})

    @property
    def last(self) -> int:
        """The last iteration with any data; 0 before the first."""
        return max((row["iteration"] for row in self.summary.iterations), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedArm:
    """Runs with equal parameters except the seed, or a single run."""

    name: str
    runs: tuple[ComparedRun, ...]

    def outcome(self, split: str) -> ArmOutcome:
        """The arm's results on one held-out split."""
        found = (replace(run.outcome, evaluations=run.evaluations(split), split=split) for run in self.runs)
        return ArmOutcome(arm=Arm(name=self.name, title=self.name, changes={}), runs=tuple(found))


def compared_runs(folders: Sequence[Path]) -> list[ComparedRun]:
    """Raises UserError for fewer than two folders, for a folder that is given twice, and for one that is not a run."""
    places = [folder.resolve() for folder in folders]
    twice = [folder for folder, place in zip(folders, places, strict=True) if places.count(place) > 1]
    if twice:
        raise UserError(f"{twice[0]}: given twice; name each run once")
    if len(folders) < 2:
        raise UserError("one run cannot be compared; give at least two run folders")
    names = distinguishing_names(places)
    found = [_compared_run(folder, name) for folder, name in zip(folders, names, strict=True)]
    main = next((run.outcome.split for run in found if run.outcome.split), "")
    return [replace(run, outcome=replace(run.outcome, split=run.outcome.split or main)) for run in found]


def _compared_run(folder: Path, name: str) -> ComparedRun:
    if not folder.is_dir():
        raise UserError(f"{folder}: no such run; give folders such as those below runs")
    summary = collect(folder)
    if not summary.iterations and not any(found.evaluations for found in summary.held_out):
        raise UserError(f"{folder}: nothing was played or evaluated there; give the folder of a run")
    params = _effective_of(read_run_config(folder))
    seed = params.get(SEED)
    outcome = outcome_of(summary, seed if isinstance(seed, int) else 0)
    return ComparedRun(name=name, summary=summary, outcome=outcome, params=params)


def _effective_of(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> value of recorded parameters, for the keys that outputs depend on."""
    config = default_config(recorded)
    without = flattened(resolved(config)).keys() - flattened(effective_parameters(config)).keys()
    return {key: value for key, value in flattened(recorded).items() if key not in without}


def with_newest(runs: Sequence[Path]) -> list[Path]:
    """At least two runs to compare. The newest runs replace missing ones; if none is given, the older one comes first.
    Raises UserError that names the runs that there are.
    """
    given = [existing_run(run) for run in runs]
    places = [run.resolve() for run in given]
    others = [run for run in stored_runs() if run.resolve() not in places][: max(2 - len(given), 0)]
    if len(given) + len(others) < 2:
        raise UserError(f"one run cannot be compared; {runs_text(stored_runs())}")
    return [*given, *reversed(others)]


def distinguishing_names(folders: Sequence[Path]) -> list[str]:
    """The parts of each path that differ from the others: `a` and `b` for x/a/run and x/b/run."""
    parts = [folder.parts for folder in folders]
    shortest = min(map(len, parts)) - 1  # so that something is left of each path
    before = next((i for i in range(shortest) if len({path[i] for path in parts}) > 1), shortest)
    after = next((i for i in range(shortest - before) if len({path[-1 - i] for path in parts}) > 1), shortest - before)
    return [one_line("/".join(path[before : len(path) - after]), LONGEST_NAME) for path in parts]


def arms_of(runs: Sequence[ComparedRun]) -> list[ComparedArm]:
    """The arms in the order of their first runs. If the runs differ only in their seeds, every run is its own arm.

    Runs with the same seed are never one arm, because something else must differ, such as the program.
    """
    groups: dict[str, list[ComparedRun]] = {}
    for run in runs:
        others = {key: value for key, value in run.params.items() if key != SEED}
        groups.setdefault(json.dumps(others, sort_keys=True), []).append(run)
    arms: list[ComparedArm] = []
    for group in groups.values():
        one = len(groups) > 1 and len({run.outcome.seed for run in group}) == len(group)
        arms += [_seeds_arm(group)] if one else [ComparedArm(name=run.name, runs=(run,)) for run in group]
    return arms


def _seeds_arm(runs: Sequence[ComparedRun]) -> ComparedArm:
    """The arm of several seeds, named by the common part of its runs' names: `full` for full/seed0 and full/seed1."""
    if len(runs) == 1:
        return ComparedArm(name=runs[0].name, runs=tuple(runs))
    letters = zip(*(run.name for run in runs), strict=False)
    same = takewhile(lambda found: len(set(found)) == 1, letters)
    shared = OF_SEED.sub("", "".join(first for first, *_ in same))
    return ComparedArm(name=shared or f"{runs[0].name} and {len(runs) - 1} more", runs=tuple(runs))


def differing_keys(arms: Sequence[ComparedArm]) -> list[str]:
    """The parameters, except the seed, in which the arms differ."""
    first, *others = (arm.runs[0].params for arm in arms)
    keys = dict.fromkeys(key for one in others for key in parameter_differences(one, first))
    return [key for key in keys if key != SEED]


def parameter_text(params: Mapping[str, Any], key: str) -> str:
    return shown_value(params.get(key, ABSENT))
