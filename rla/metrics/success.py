"""Success on held-out tasks: overall and by kind of task with intervals, steps and why episodes ended; of k answers;
and how many met a limit.

Episodes that the environment broke tell nothing about the policy. As in the metrics of an iteration they count neither
as won nor as lost, and `env_errors` says how many there were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.metrics.at_k import Answered, Estimator, figures_at_k
from rla.metrics.intervals import success_interval
from rla.store.reading import read_manifest, read_nested, verify_shard
from rla.store.records import StopReason

LIMITS = ("invalid_actions", "truncated", "context_stops", "env_errors")  # counts of what did not end as it should
READ = ("task_id", "kind", "outcome", "stop_reason", "steps.list.element.valid")
SAID = (*(f"steps.list.element.{name}" for name in ("action", "observation", "truncated")), "final_observation")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidEpisode:
    """What was said in an episode: its actions, and what was answered to each. `ended`: the last action could be read
    and was not cut.
    """

    task_id: str
    actions: Sequence[str]
    answers: Sequence[str]
    ended: bool


ClassOf = Callable[[SaidEpisode], str | None]  # what an episode votes for


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedEpisode:
    """What counts of an episode. `vote`: the class of its answer, None where it has none. `stop_reason`: why it ended,
    None where it was played elsewhere.
    """

    task_id: str
    kind: str
    won: bool
    steps: int
    broken: bool = False
    stop_reason: StopReason | None = None
    vote: str | None = None


def held_out_metrics(
    folder: Path,
    *,
    class_of: ClassOf | None = None,
    family_of: Callable[[str], str] | None = None,
    estimator: Estimator = "unbiased",
) -> dict[str, Any]:
    """The metrics of a complete trajectory shard. `class_of` reads answers, where they have classes; `family_of` says
    which kinds belong together.

    `episodes` are those that count, `steps` all that were taken. Raises UserError where none counts.
    """
    manifest = read_manifest(folder, "trajectories")
    verify_shard(folder, manifest)
    played = list(episodes_of_shard(folder, manifest["parts"], class_of))
    if all(one.broken for one in played):
        raise UserError(
            f"{folder}: the environment broke all {len(played)} episodes; mend it and call the stage with --overwrite"
            if played
            else f"{folder}: no episode was played; the held-out pool or evaluation.tasks is empty"
        )
    found = success_metrics(played, manifest["counts"], voted=class_of is not None, estimator=estimator)
    return found if family_of is None else {**found, "by_family": figures_by(played, family_of)}


def episodes_of_shard(
    folder: Path, parts: Sequence[Mapping[str, Any]], class_of: ClassOf | None
) -> Iterator[EvaluatedEpisode]:
    """`class_of` decides whether an episode votes."""
    columns = [*READ, *SAID] if class_of else READ
    for entry in parts:
        for row in read_nested(folder / entry["name"], columns, kind="trajectories", entry=entry):
            yield EvaluatedEpisode(
                task_id=row["task_id"],
                kind=row["kind"],
                won=row["outcome"] == 1,
                steps=len(row["steps"]),
                broken=row["stop_reason"] == StopReason.ENV_ERROR,
                stop_reason=StopReason(row["stop_reason"]),
                vote=class_of(said_in_row(row)) if class_of and row["steps"] else None,
            )


def said_in_row(row: Mapping[str, Any]) -> SaidEpisode:
    """Of a trajectory row with `SAID` that has a step."""
    steps = row["steps"]
    return SaidEpisode(
        task_id=row["task_id"],
        actions=[step["action"] for step in steps],
        answers=[*(step["observation"] for step in steps[1:]), row["final_observation"]],
        ended=steps[-1]["valid"] and not steps[-1]["truncated"],
    )


def success_metrics(
    played: Sequence[EvaluatedEpisode],
    counts: Mapping[str, int | None],
    *,
    voted: bool,
    estimator: Estimator = "unbiased",
) -> dict[str, Any]:
    """The metrics of episodes of which one counts at least; `counts` are of all. `voted`: answers have classes."""
    whole = [one for one in played if not one.broken]
    return {
        **success_figures(played),
        "steps": counts["steps"],
        **{name: counts[name] for name in LIMITS},
        "by_kind": figures_by(played, lambda kind: kind),
        "at_k": figures_at_k(answered_questions(whole, voted=voted), estimator=estimator),
    }


def figures_by(played: Sequence[EvaluatedEpisode], part_of: Callable[[str], str]) -> dict[str, Any]:
    """The figures of each part of the kinds of which an episode counts."""
    parts = sorted({part_of(one.kind) for one in played if not one.broken})
    return {name: success_figures([one for one in played if part_of(one.kind) == name]) for name in parts}


def success_figures(played: Sequence[EvaluatedEpisode]) -> dict[str, Any]:
    """Of all episodes or of those of a kind, of which one counts at least."""
    whole = [one for one in played if not one.broken]
    interval = success_interval((one.task_id, one.won) for one in whole)
    if interval is None:
        raise ValueError("no episode counts")
    return {
        "episodes": len(whole),
        "success": interval.estimate,
        "success_low": interval.low,
        "success_high": interval.high,
        "mean_steps": sum(one.steps for one in whole) / len(whole),
        "stop_reasons": stop_reasons(played),
    }


def stop_reasons(played: Sequence[EvaluatedEpisode]) -> dict[str, int] | None:
    """How many episodes ended for each reason, those that the environment broke included; None where one's is not
    known.
    """
    reasons = [one.stop_reason for one in played]
    return None if None in reasons else {str(reason): reasons.count(reason) for reason in StopReason}


def answered_questions(whole: Sequence[EvaluatedEpisode], *, voted: bool) -> dict[str, Answered]:
    """The episodes of each task, which is a question; its kind is its source."""
    groups: dict[str, list[EvaluatedEpisode]] = {}
    for one in whole:
        groups.setdefault(one.task_id, []).append(one)
    return {
        task_id: Answered(
            source=group[0].kind,
            right=[one.won for one in group],
            votes=[one.vote for one in group] if voted else None,
        )
        for task_id, group in groups.items()
    }
