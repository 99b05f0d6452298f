"""The metrics files of a run and the times of its stages, gathered into plain rows.

Whatever is missing (a run that is still going on, a stage that was skipped) is simply not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rla.config import Config
from rla.envs.configured import from_mapping
from rla.envs.protocols import Probes
from rla.envs.registry import environment
from rla.errors import UserError
from rla.metrics.custom import joined_figures
from rla.metrics.guards import Setting
from rla.metrics.intervals import Interval, difference
from rla.pipeline.finished import TimedCall, current_calls
from rla.store.layout import PATHS, SPLITS, artifact, further_splits, numbered_folders
from rla.store.reading import read_rows
from rla.store.record import MANIFEST, is_complete, read_json
from rla.store.records import StopReason
from rla.store.run_config import read_run_config, run_config_path

Row = dict[str, Any]
FORMS: tuple[Literal["tagged"], Literal["index"]] = ("tagged", "index")  # of `policy.reply`, which differ


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Measurements on one held-out split. `gain`: the last evaluation minus the first."""

    split: str
    evaluations: tuple[Row, ...]
    gain: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """`iterations`: one row per iteration, keys of the metrics files, those of training prefixed `policy_` and `rm_`,
    those of adaptation `tasks_`, the counts of the two shards `rollout_` and `judged_`. `seconds`: (iteration, stage)
    -> seconds of its calls. `evaluations`, `gain`: of the main held-out split; `further`: of the others."""

    run: Path
    iterations: tuple[Row, ...]
    evaluations: tuple[Row, ...]
    seconds: Mapping[tuple[int, str], float]
    gain: Interval | None  # last evaluation minus the first
    further: tuple[HeldOut, ...] = ()
    # `balanced`, `mu` -> last evaluation minus the first, of the reward model on the frozen probe
    probe_change: Mapping[str, Interval] = field(default_factory=dict)
    figures: Mapping[tuple[int, str], Mapping[str, float]] = field(default_factory=dict)  # of services
    setting: Setting = field(default_factory=Setting)  # what its warnings are about

    @property
    def held_out(self) -> tuple[HeldOut, ...]:
        """All held-out splits, the main one first; its name is empty where no evaluation says it."""
        named = next((row["split"] for row in self.evaluations if "split" in row), "")
        return (HeldOut(split=named, evaluations=self.evaluations, gain=self.gain), *self.further)


def collect(run: Path) -> RunSummary:
    """Read all metrics below `run`. Raises UserError for a file that is not JSON."""
    main = held_out(run, "")
    return RunSummary(
        run=run,
        iterations=tuple(iteration_row(run, number) for number in numbered_folders(run) if number > 0),
        evaluations=main.evaluations,
        seconds=seconds_of(run),
        figures=figures_measured(run),
        gain=main.gain,
        probe_change=probe_change_of(run, main.evaluations),
        setting=recorded_setting(run),
        further=tuple(held_out(root, split) for split, root in further_splits(run).items()),
    )


def recorded_setting(run: Path) -> Setting:
    """By the `config.yaml` of a run; the defaults if it has none, or is of an environment that is not installed."""
    try:
        return setting_of(from_mapping(read_run_config(run), where=str(run_config_path(run))))
    except UserError:
        return Setting()


def setting_of(config: Config) -> Setting:
    """The parameters that warnings about a run depend on."""
    chosen = environment(config.env.name)
    prompts = [chosen.policy_prompt(replace(config, policy=replace(config.policy, reply=form))) for form in FORMS]
    return Setting(config=config, probes=isinstance(chosen, Probes), reply_form=prompts[0] != prompts[1])


def held_out(root: Path, split: str) -> HeldOut:
    """The evaluations below the root of a held-out split, which for the main one is the run."""
    evaluations = tuple(
        {"iteration": number, **read_json(artifact(root, "eval_metrics", number))}
        for number in numbered_folders(root / "eval")
        if artifact(root, "eval_metrics", number).exists()
    )
    gain = gain_of(root, [row["iteration"] for row in evaluations])
    return HeldOut(split=split, evaluations=evaluations, gain=gain)


def iteration_row(run: Path, number: int) -> Row:
    """All metrics of one iteration, flat."""
    row: Row = {"iteration": number, **json_or_empty(artifact(run, "metrics", number))}
    for prefix, name in (("policy_", "policy"), ("rm_", "rm")):
        found = json_or_empty(artifact(run, name, number) / "metrics.json")
        row |= {f"{prefix}{key}": value for key, value in found.items()}
    for prefix, name in (("tasks_", "candidates"), ("rollout_", "trajectories"), ("judged_", "scores")):
        counts = json_or_empty(artifact(run, name, number) / MANIFEST).get("counts", {})
        row |= {f"{prefix}{key}": value for key, value in counts.items()}
    return row


def json_or_empty(path: Path) -> Row:
    return read_json(path) if path.exists() else {}


def seconds_of(run: Path) -> dict[tuple[int, str], float]:
    """Seconds of every stage, of the calls that made what lies there now. Raises UserError for a damaged record."""
    seconds: dict[tuple[int, str], float] = {}
    for calls in recorded_calls(run):
        key, spent = (calls[0].iteration, calls[0].stage), sum(call.seconds for call in calls)
        seconds[key] = max(spent, seconds.get(key, 0.0))  # slices run side by side: the longest counts
    return seconds


def figures_measured(run: Path) -> dict[tuple[int, str], dict[str, float]]:
    """(iteration, stage) -> what its calls measured, slices included. Raises UserError for a damaged record."""
    found: dict[tuple[int, str], list[Mapping[str, float]]] = {}
    for calls in recorded_calls(run):
        found.setdefault((calls[0].iteration, calls[0].stage), []).extend(one.figures for one in calls if one.figures)
    return {key: joined_figures(figures) for key, figures in sorted(found.items()) if figures}


def recorded_calls(run: Path) -> Iterator[list[TimedCall]]:
    """The calls of each record of times that has some. Raises UserError for a damaged one."""
    for path in sorted((run / "timings").glob("*.json")):
        try:
            calls = current_calls(read_json(path))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UserError(f"{path}: not the times of a stage; remove it, and the report goes without them") from None
        if calls:
            yield calls


def gain_of(run: Path, evaluated: list[int]) -> Interval | None:
    """Success of the last evaluation minus the first, with its 95% interval over tasks; None without two."""
    if len(evaluated) < 2:
        return None
    return gain_between(*(artifact(run, "eval_trajectories", number) for number in (evaluated[0], evaluated[-1])))


def gain_between(before: Path, after: Path) -> Interval | None:
    """The same of two folders of episodes; None unless both are complete."""
    if not (is_complete(before) and is_complete(after)):
        return None
    return difference(task_outcomes(before), task_outcomes(after))


def probe_change_of(run: Path, evaluations: Sequence[Row]) -> dict[str, Interval]:
    """Of the last evaluation that has a figure of the probe minus the first; empty without two of the same probe whose
    votes are there.
    """
    probe = artifact(run, "probe_trajectories", 0)
    measured = [row["iteration"] for row in evaluations if row.get("probe_balanced") is not None]
    judged = [artifact(run, "probe_scores", number) for number in measured]
    if len(judged) < 2 or not all(map(is_complete, (probe, judged[0], judged[-1]))):
        return {}
    from rla.metrics.process import probe_changes  # brings polars, which takes a while

    return probe_changes(probe, judged[0], judged[-1])


def task_outcomes(folder: Path) -> dict[str, list[bool]]:
    """task id -> whether each episode was won, without episodes that ended because their environment failed."""
    won: dict[str, list[bool]] = {}
    for row in read_rows(folder, "trajectories", ["task_id", "outcome", "stop_reason"]):
        if row["stop_reason"] != StopReason.ENV_ERROR:
            won.setdefault(row["task_id"], []).append(row["outcome"] == 1)
    return won


def artifact_places(run: Path) -> list[tuple[str, str]]:
    """(artifact, folder) of every output of a run; `<i>` stands for the iteration."""
    names = [name for name in PATHS if not name.startswith("previous_")]
    found = [(name, str(run / PATHS[name].format(i="<i>", p=""))) for name in names]
    of_split = ("test_tasks", "eval_trajectories", "eval_metrics") if further_splits(run) else ()
    return found + [
        (f"{name}, further splits", str(run / SPLITS / "<split>" / PATHS[name].format(i="<i>"))) for name in of_split
    ]


def titled_splits(summary: RunSummary) -> list[HeldOut]:
    """Every held-out split with its name, which the only split of a run does not need."""
    main, *further = summary.held_out
    return [main if further else replace(main, split=""), *further]
