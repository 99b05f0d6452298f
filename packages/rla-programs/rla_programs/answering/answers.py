"""Judges answers that were given elsewhere: `rla evaluate --from FILE`.

The policy's prompt parses an action from an answer, as from a reply, and the environment judges that action. No model
is loaded, and only metrics are written. If the episode goes on after an answer, that is an error, like a broken
environment.

The last reply of a transcript (`rla_programs.answering.transcripts`) is the answer. Its calls count but are not run
again. If that reply is a call, or a result follows it, there is no answer and the episode is lost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.agents import NO_ACTION, action_in
from rla.envs.observation import (
    AwaitedEnvironment,
    Concludes,
    Environment,
    EnvironmentFailure,
    Observation,
    Recalls,
    close_environment,
    environment_code,
    settled,
)
from rla.envs.pool import Environments, MakeEnv, environments
from rla.envs.protocols import PolicyPrompt
from rla.envs.registry import environment
from rla.errors import UserError
from rla.metrics.success import EvaluatedEpisode, success_metrics
from rla.pipeline import StageContext
from rla.pipeline.origins import refuse_foreign, run_async
from rla.rollouts.evaluation import evaluating
from rla.rollouts.play import run_groups
from rla.store.atomic import write_json
from rla.store.manifest import file_digest
from rla.store.reading import read_tasks
from rla.store.records import Task
from rla_programs.answering.answer_files import MatchedAnswers, matched_answers, read_answers
from rla_programs.answering.transcripts import Given, PlayedElsewhere, played_elsewhere
from rla_programs.answering.voting import ClassOf, SaidEpisode, answer_figures, class_of_answers
from rla_programs.tool.tool_use import given_tool_figures

UNENDED = "the episode goes on after the answer: it takes more than one reply"
METRICS = "answers.json"  # next to the metrics of the run's own policy


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """`vote`: the class of the answer, None if it has none. `error`: why the answer could not be judged, else empty.
    `calls`: number of tool calls, valid if `told`. `answered`: whether the transcript ends with an answer.
    """

    episode: EvaluatedEpisode
    read: bool
    vote: str | None = None
    error: str = ""
    calls: int = 0
    told: bool = False
    answered: bool = True


def evaluate_answers(contexts: Mapping[str, StageContext], file: Path, *, metrics: Path | None) -> dict[str, Any]:
    """Judge the answers to the tasks of each held-out split; `contexts` is by split. `metrics`: the file to write;
    None: `METRICS` in the evaluation's folder.

    Raises UserError if no answer belongs to a task, or if more than the allowed share could not be judged.
    """
    for option in ("slice", "workers"):
        if any(option in ctx.options for ctx in contexts.values()):
            raise UserError(f"--{option}: one process judges the answers of --from; leave it out")
    for ctx in contexts.values():
        refuse_foreign(ctx.path("tasks"), ctx.config.env.name)
    rows = read_answers(file)
    pools = {
        split: sorted(read_tasks(ctx.path("tasks")), key=lambda one: one.task_id) for split, ctx in contexts.items()
    }
    found = {split: matched_answers(rows, pool) for split, pool in pools.items()}
    if not any(given.groups for given in found.values()):
        raise UserError(
            f"{file}: none of its {len(rows)} rows belongs to one of the {sum(map(len, pools.values()))} tasks of "
            f"{' and '.join(pools)}; task_id must name a task of the pool, or question (verl: input) have its text"
        )
    summaries = {}
    for split, given in found.items():
        ctx = contexts[split]
        ctx.progress.note(f"{file}, {split}: {given.told()}")
        if given.groups:
            place = metrics or ctx.path("metrics").with_name(METRICS)
            summaries[split] = _evaluate_matched(ctx, file, given, split, place)
    return summaries if len(summaries) > 1 else next(iter(summaries.values()))


def _evaluate_matched(ctx: StageContext, file: Path, given: MatchedAnswers, split: str, place: Path) -> dict[str, Any]:
    """Judge one split. The metrics are those of an evaluation, null if they would need tokens."""
    started = time.monotonic()
    class_of = class_of_answers(ctx.config, given.tasks)
    judged = _judged_answers(ctx, given, class_of)
    failed = [one.error for one in judged if one.error]
    if len(failed) == len(judged) or len(failed) > ctx.config.rollout.max_failed_share * len(judged):
        raise UserError(
            f"{file}: {len(failed)} of {len(judged)} answers could not be judged, more than rollout.max_failed_share; "
            f"the first because {failed[0]}"
        )
    if failed:
        ctx.progress.note(f"{len(failed)} answers could not be judged, the first because {failed[0]}")
    unanswered = sum(not one.answered for one in judged)
    if unanswered:
        ctx.progress.note(f"{unanswered} transcripts end without an answer, and are lost")
    counts: dict[str, int | None] = {"steps": sum(one.episode.steps for one in judged), "env_errors": len(failed)}
    counts |= {"truncated": None, "context_stops": None}
    counts |= {"invalid_actions": sum(not one.read for one in judged)}
    own = {
        "iteration": ctx.iteration,
        "split": split,
        "from": {
            "file": file.name,
            "sha256": file_digest(file),
            **given.counts(),
            "without_answer": unanswered,
        },
    }
    voted = [(one.episode, one.vote) for one in judged]
    at_k = answer_figures(voted, classes=class_of is not None, estimator=ctx.config.evaluation.estimator)
    measured = success_metrics([one for one, _ in voted], counts) | {"at_k": at_k} | calls_of_transcripts(judged)
    write_json(place, {**own, **measured, "seconds": round(time.monotonic() - started, 1)})
    return {"metrics": str(place), **{key: measured[key] for key in ("episodes", "success", "env_errors")}}


def calls_of_transcripts(judged: Sequence[JudgedAnswer]) -> dict[str, Any]:
    """The figures of calls, if at least one answer reports its calls; then an answer without a call made none."""
    if not any(one.told for one in judged):
        return {}
    return given_tool_figures([(one.episode.kind, one.calls) for one in judged if not one.episode.broken])


def _judged_answers(ctx: StageContext, given: MatchedAnswers, class_of: ClassOf | None) -> list[JudgedAnswer]:
    """One result for each answer, in the order of tasks."""
    config = evaluating(ctx.config)
    prompt = environment(config.env.name).policy_prompt(config)
    found: dict[int, list[JudgedAnswer]] = {}
    ctx.progress.start("answers", total=sum(map(len, given.groups)))

    def finished(position: int, judged: list[JudgedAnswer]) -> None:
        found[position] = judged
        ctx.progress.advance(len(judged))

    async def played(made: Environments) -> None:
        async def one(answer: tuple[Task, Given]) -> JudgedAnswer:
            return await judge_answer(*answer, made.make, prompt, config.env.reward_threshold, class_of)

        try:
            await run_groups(given.groups, one, concurrency=config.rollout.concurrency, finished=finished)
        finally:
            await made.close()

    with environments(config, note=ctx.progress.note) as made:
        run_async(played(made))
    return [one for position in sorted(found) for one in found[position]]


async def judge_answer(
    task: Task, response: Given, make: MakeEnv, prompt: PolicyPrompt, threshold: float, class_of: ClassOf | None
) -> JudgedAnswer:
    """Let the environment judge the end of an episode that was played elsewhere."""
    played, named = played_elsewhere(response, prompt), f"environment {task.env}, task {task.task_id}"
    won, action, text, error, made = False, None, "", "", None
    try:
        with environment_code(named):
            made = make(task)
            first = await settled(made.reset())
        action = action_in(played.replies[-1], prompt, first.commands)
        with environment_code(named):
            last = await concluded(made, played, NO_ACTION if action is None else action)
        won, text = last.success(threshold), last.text
        error = "" if won or last.done else UNENDED
    except EnvironmentFailure as failure:
        error = str(failure) or type(failure).__name__
    finally:
        if made is not None:
            close_environment(made, named)
    said = SaidEpisode(
        task_id=task.task_id,
        actions=[*played.replies[:-1], NO_ACTION if action is None else action],
        answers=[*played.answers[:-1], text],
        ended=played.answered and action is not None,
    )
    vote = class_of(said) if class_of is not None else None
    episode = EvaluatedEpisode(
        task_id=task.task_id, kind=task.kind, won=won, steps=len(played.replies), broken=bool(error)
    )
    return JudgedAnswer(
        episode=episode,
        vote=vote,
        read=action is not None or not played.answered,
        error=error,
        calls=played.calls,
        told=played.told,
        answered=played.answered,
    )


async def concluded(made: Environment | AwaitedEnvironment, played: PlayedElsewhere, action: str) -> Observation:
    """The last observation of an episode whose last action is `action`. The earlier part is restored in environments
    that support it. A reply that is not an answer is never stepped, because its call would run.
    """
    if played.answered:
        if isinstance(made, Recalls):
            made.recall(played.replies[:-1], played.answers[:-1])
        return await settled(made.step(action))
    if isinstance(made, Recalls) and isinstance(made, Concludes):
        made.recall(played.replies, played.answers)
        return await settled(made.stopped())
    return Observation(text="", done=True)
