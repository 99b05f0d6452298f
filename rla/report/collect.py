"""The metrics of a run and the times of its stages, as plain rows.

A run may still be in progress, and a stage may have been skipped: metrics that do not exist are missing in the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from rla.config import Config
from rla.envs.registry import from_mapping
from rla.errors import UserError
from rla.metrics.custom import joined_figures
from rla.metrics.intervals import Interval, difference
from rla.store.layout import artifact, further_splits, numbered_folders
from rla.store.manifest import MANIFEST, is_complete, optional_json, read_json, read_run_config, run_config_path
from rla.store.reading import read_rows
from rla.store.records import StopReason

Row = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Measurements on one held-out split. `gain`: the last evaluation minus the first."""

    split: str
    evaluations: tuple[Row, ...]
    gain: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """`iterations`: one row per iteration with the keys of its metrics files. Metrics of training have the prefixes
    `policy_` and `rm_`, of adaptation `tasks_`, counts of shards `rollout_` and `judged_`. `evaluations` and `gain` are
    of the main held-out split, `further` of the others.
    """

    run: Path
    iterations: tuple[Row, ...]
    evaluations: tuple[Row, ...]
    seconds: Mapping[tuple[int, str], float]  # of (iteration, stage)
    gain: Interval | None  # last evaluation minus the first
    further: tuple[HeldOut, ...] = ()
    probe_gain: Interval | None = None  # of the reward model's balanced accuracy on the frozen probe, like `gain`
    figures: Mapping[tuple[int, str], Mapping[str, float]] = field(default_factory=dict)  # from packages
    config: Config = field(default_factory=Config)  # as far as it is known

    @property
    def held_out(self) -> tuple[HeldOut, ...]:
        """All held-out splits, the main one first. Its name is empty if no evaluation gives it."""
        named = next((row["split"] for row in self.evaluations if "split" in row), "")
        return (HeldOut(split=named, evaluations=self.evaluations, gain=self.gain), *self.further)


def collect(run: Path, config: Config | None = None) -> RunSummary:
    """Read all metrics of a run, whose `config` is by default the recorded one. Raises UserError for a file that is not
    JSON.
    """
    main = held_out(run, "")
    figures: defaultdict[tuple[int, str], list[Mapping[str, float]]] = defaultdict(list)
    calls = list(recorded_calls(run, dict))
    for call in (one for one in calls if one["figures"]):
        figures[call["iteration"], call["stage"]].append(call["figures"])
    return RunSummary(
        run=run,
        iterations=tuple(iteration_row(run, number) for number in numbered_folders(run) if number > 0),
        evaluations=main.evaluations,
        seconds=_longest(calls),
        figures={key: joined_figures(found) for key, found in sorted(figures.items())},
        gain=main.gain,
        probe_gain=_probe_gain(run, main.evaluations),
        config=config or _recorded_config(run),
        further=tuple(held_out(root, split) for split, root in further_splits(run).items()),
    )


def _recorded_config(run: Path) -> Config:
    """From the run's `config.yaml`; the defaults if there is none, or if a package that it needs is missing."""
    try:
        return from_mapping(read_run_config(run), where=str(run_config_path(run)))
    except UserError:
        return Config()


def held_out(root: Path, split: str) -> HeldOut:
    """The evaluations on a held-out split. `root`: the folder of the split; for the main split, the run."""
    evaluations = tuple(evaluation_rows(root))
    ends = [artifact(root, "eval_trajectories", row["iteration"]) for row in (*evaluations[:1], *evaluations[1:][-1:])]
    return HeldOut(split=split, evaluations=evaluations, gain=gain_between(*ends) if len(ends) == 2 else None)


def evaluation_rows(root: Path) -> Iterator[Row]:
    """The metrics of each evaluation on a held-out split."""
    for number in numbered_folders(root / "eval"):
        if (found := optional_json(artifact(root, "eval_metrics", number))) is not None:
            yield {"iteration": number, **found}


def iteration_row(run: Path, number: int) -> Row:
    """All metrics of one iteration, as one flat row."""
    row: Row = {"iteration": number, **(optional_json(artifact(run, "metrics", number)) or {})}
    for prefix, name in (("policy_", "policy"), ("rm_", "rm")):
        found = optional_json(artifact(run, name, number) / "metrics.json") or {}
        row |= {f"{prefix}{key}": value for key, value in found.items()}
    for prefix, name in (("tasks_", "candidates"), ("rollout_", "trajectories"), ("judged_", "scores")):
        counts = (optional_json(artifact(run, name, number) / MANIFEST) or {}).get("counts", {})
        row |= {f"{prefix}{key}": value for key, value in counts.items()}
    return row


def seconds_of(run: Path) -> dict[tuple[int, str], float]:
    """(iteration, stage) -> seconds of the calls that made the present outputs. Raises as `recorded_calls`."""
    return _longest(recorded_calls(run, dict))


def _longest(calls: Iterable[Row]) -> dict[tuple[int, str], float]:
    """(iteration, stage) -> seconds of all calls in its record; of several records, those of slices, the most."""
    spent: defaultdict[tuple[int, str], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for call in calls:
        spent[call["iteration"], call["stage"]][call["record"]] += call["seconds"]
    return {place: max(records.values()) for place, records in spent.items()}


def recorded_calls(run: Path, read: Callable[[Row], T]) -> Iterator[T]:
    """Yield `read(call)` for each call in the records of times (`rla.cli.calls`) whose outputs are current.

    A call also has its `iteration`, `stage` and `record`, the name of the file. Calls of `report` are left out, because
    it would change with every call if it had its own time. Raises UserError for a damaged record.
    """
    for path in sorted((run / "timings").glob("*.json")):
        try:
            record = read_json(path)
            place = {"iteration": int(record["iteration"]), "stage": str(record["stage"]), "record": path.name}
            last = record["calls"][-1]["origin"]
            calls = []
            for call in record["calls"]:
                figures = {str(name): float(value) for name, value in call.get("figures", {}).items()}
                if call["origin"] in (None, last):
                    calls.append(read(call | place | {"seconds": float(call["seconds"]), "figures": figures}))
        except (IndexError, KeyError, TypeError, ValueError, AttributeError):
            raise UserError(f"{path}: not the times of a stage; remove it, and the report goes without them") from None
        if place["stage"] != "report":
            yield from calls


def gain_between(before: Path, after: Path) -> Interval | None:
    """The success in the folder `after` minus `before`, with its 95% interval over tasks; None unless both shards are
    complete.
    """
    if not (is_complete(before) and is_complete(after)):
        return None
    return difference(task_outcomes(before), task_outcomes(after))


def _probe_gain(run: Path, evaluations: Sequence[Row]) -> Interval | None:
    """The last evaluation on the frozen probe minus the first; None unless the votes of both are there."""
    probe = artifact(run, "probe_trajectories", 0)
    measured = [row["iteration"] for row in evaluations if row.get("probe_balanced") is not None]
    judged = [artifact(run, "probe_scores", number) for number in measured]
    if len(judged) < 2 or not all(map(is_complete, (probe, judged[0], judged[-1]))):
        return None
    from rla.metrics.diagnostics import probe_change  # brings polars, which takes a while

    return probe_change(probe, judged[0], judged[-1])


def task_outcomes(folder: Path) -> dict[str, list[bool]]:
    """task id -> whether each of its episodes was won. Episodes whose environment failed are left out."""
    won: dict[str, list[bool]] = {}
    for row in read_rows(folder, "trajectories", ["task_id", "outcome", "stop_reason"]):
        if row["stop_reason"] != StopReason.ENV_ERROR:
            won.setdefault(row["task_id"], []).append(row["outcome"] == 1)
    return won


def titled_splits(summary: RunSummary) -> list[HeldOut]:
    """Every held-out split with its name. If there is only one split, its name is empty."""
    main, *further = summary.held_out
    return [main if further else replace(main, split=""), *further]
