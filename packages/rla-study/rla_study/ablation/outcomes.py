"""The results of an ablation's arms, read from their run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rla.report.collect import HeldOut, RunSummary, collect
from rla.report.collect import task_outcomes as wins
from rla.report.tables import ABSENT
from rla.store.layout import artifact, further_splits
from rla_study.ablation.design import Arm, Design
from rla_study.ablation.folders import RUN, arm_folder
from rla_study.timeline.timeline import timed_calls

# Of one evaluation: task -> whether each rollout was won. Rollouts and tasks that the environment broke are left out.
Wins = Mapping[str, list[bool]]
LAST = 3  # iterations over which a run's diagnostics are averaged


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """One arm with one seed: evaluations by iteration, and the metrics of its iterations.

    `split`: the held-out split of `evaluations`, empty if they do not name it. `further`: evaluations on the other
    splits. `measured`: iteration -> the metrics of the evaluation on `split`. `hours`: the time of the run's own
    stages. `parameters`: by dotted key, for a run that was read from a record (`rla_study.ablation.records`).
    """

    seed: int
    evaluations: Mapping[int, Wins]
    iterations: tuple[Mapping[str, Any], ...]
    split: str = ""
    further: Mapping[str, Mapping[int, Wins]] = field(default_factory=dict)
    measured: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    hours: float = 0.0
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return max(self.evaluations)

    def rate(self, iteration: int) -> float:
        won = [win for wins in self.evaluations[iteration].values() for win in wins]
        return sum(won) / len(won)

    def mean(self, key: str, *, until: int) -> float | None:
        """Mean of the metric `key` over the last iterations up to `until` that have it."""
        values = [row[key] for row in self.iterations if row["iteration"] <= until and row.get(key) is not None][-LAST:]
        return sum(values) / len(values) if values else None

    def total(self, key: str, *, until: int) -> float:
        return float(sum(row.get(key) or 0 for row in self.iterations if row["iteration"] <= until))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmOutcome:
    """An arm and its finished seeds; empty if it has not run yet. `own_starts`: every seed has its own start, shared by
    the arms that do not change it.
    """

    arm: Arm
    runs: tuple[RunOutcome, ...]
    own_starts: bool = False

    @property
    def shared_points(self) -> list[int]:
        """The iterations at which all of its seeds were evaluated."""
        points = [set(run.evaluations) for run in self.runs]
        return sorted(set.intersection(*points)) if points else []


def compared_with(found: ArmOutcome, arms: Sequence[ArmOutcome], baseline: str) -> ArmOutcome | None:
    """The arm that `found` is compared with: the one in the design, else the baseline. None for the baseline."""
    name = found.arm.against or baseline
    return next((other for other in arms if other.arm.name == name and other is not found), None)


def paired_seeds(found: ArmOutcome, other: ArmOutcome) -> bool:
    """Whether equal seeds of both arms belong together. If each seed has its own start, it shares much of its result
    with that start.
    """
    return found.own_starts and other.own_starts and [r.seed for r in found.runs] == [r.seed for r in other.runs]


def against_text(found: ArmOutcome, text: str) -> str:
    """A difference, with the name of the other arm unless that is the baseline."""
    return f"{text} over {found.arm.against}" if found.arm.against and text != ABSENT else text


def held_out_names(arms: Sequence[ArmOutcome]) -> list[str]:
    """The further held-out splits that some arm was evaluated on."""
    return sorted({split for found in arms for run in found.runs for split in run.further})


def on_split(found: ArmOutcome, split: str) -> ArmOutcome:
    """The arm with its evaluations on a further held-out split instead of those on the main one.

    Runs without an evaluation after the start on that split are left out, as in `outcomes`.
    """
    runs = (replace(run, evaluations=run.further.get(split, {}), split=split) for run in found.runs)
    return replace(found, runs=tuple(run for run in runs if _evaluated_after_start(run)))


def outcomes(design: Design, root: Path) -> list[ArmOutcome]:
    """Every arm of the design with the seeds that were evaluated after the start."""
    found = []
    for arm in design.arms:
        runs = [_run_outcome(arm_folder(root, arm, seed) / RUN, seed) for seed in design.seeds]
        kept = tuple(run for run in runs if run is not None and _evaluated_after_start(run))
        found.append(ArmOutcome(arm=arm, runs=kept, own_starts=design.start_per_seed))
    return found


def _evaluated_after_start(run: RunOutcome) -> bool:
    """Whether the run was evaluated after the start."""
    return bool(run.evaluations) and run.last > 0


def _run_outcome(run: Path, seed: int) -> RunOutcome | None:
    """The outcome of a run folder; None if there is no evaluation yet."""
    found = outcome_of(collect(run), seed) if run.is_dir() else None
    return found if found is not None and found.evaluations else None


def outcome_of(summary: RunSummary, seed: int) -> RunOutcome:
    """The outcome of a run that was read, possibly without evaluations."""
    main, *further = summary.held_out
    roots = further_splits(summary.run)
    return RunOutcome(
        seed=seed,
        evaluations=wins_of(summary.run, main),
        iterations=summary.iterations,
        split=main.split,
        further={found.split: wins_of(roots[found.split], found) for found in further},
        measured={row["iteration"]: row for row in main.evaluations},
        hours=sum(call.seconds for call in timed_calls(summary.run)) / 3600,
    )


def wins_of(root: Path, found: HeldOut) -> dict[int, Wins]:
    """Iteration -> wins, for a held-out split whose evaluations are below `root`."""
    points = [row["iteration"] for row in found.evaluations]
    return {point: wins(artifact(root, "eval_trajectories", point)) for point in points}
