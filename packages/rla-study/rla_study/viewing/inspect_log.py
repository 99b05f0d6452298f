"""Episodes as a log of Inspect (https://inspect.aisi.org.uk): a sample is an episode, its epoch the task's rollout.

    messages         the task, then observations (user) and the policy's replies (assistant), step by step;
                     calls of a tool are the assistant's tool calls, their results are messages of the tool
    their metadata   action, reward, advantage, the solver's label, and each vote of the reward model with its reason
    scores           outcome; judge: the mean vote; judge_right: the share of votes that the solver's labels confirm

All of the text is untrusted. Control characters become blanks, and the log tells the viewer not to trust its content,
so it is shown as plain text. The viewer withholds screenshots from such a log. A log with screenshots is therefore
marked as trusted, and every text is put into a fence that it cannot close.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rla.store.records import StopReason, content_id
from rla.text import one_line, printable
from rla_study.showing.episodes import ShownEpisode, ShownStep, Vote
from rla_study.viewing.inspect_calls import inspect_calls, told_result_of

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.scorer import Score

OUTCOME, JUDGE, RIGHT = "outcome", "judge", "judge_right"
GRADES = {True: "C", False: "I"}  # Inspect's values for correct and incorrect
FIRST, THEN = (
    ("sampleId", "epoch", "input"),
    ("limit", "tokens", "error", "sampleStatus", "target", "answer", "duration"),
)
UNUSED = ("sampleStatus", "target", "answer", "duration")  # columns that episodes do not fill
SIGNS = {1: "+1", -1: "-1", None: "no vote"}
DIGITS = 3  # for display; the shards have all
LONGEST_INPUT = 170  # characters in a fence; with it, at most 360 units of UTF-16, which is the limit of a heading
FENCE = re.compile(r"`{3,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The name and the source of a log. `created`: ISO time; `unfinished`: episodes are still being played."""

    name: str
    run: str
    env: str
    policy: str
    created: str
    digest: str
    metadata: Mapping[str, Any]
    unfinished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens of an episode: those that the policy sampled, and all others that it read."""

    sampled: int
    read: int


def inspect_log(source: Exported, episodes: Sequence[ShownEpisode], tokens: Mapping[str, TokenCounts]) -> EvalLog:
    """The log. Equal arguments give equal logs."""
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalResults, EvalSpec, EvalStats

    fenced = any(one.last_images or any(step.images for step in one.steps) for one in episodes)
    samples = [_sample_of(one, tokens[one.trajectory_id], fenced=fenced) for one in episodes]
    tasks = sorted({episode.task_id for episode in episodes})
    spec = EvalSpec(
        eval_id=source.digest,
        run_id=content_id(source.run),
        task_id=content_id(source.run, source.name),
        created=source.created,
        task=source.name,
        model=f"rla/{source.policy}",
        dataset=EvalDataset(name=source.env, samples=len(tasks), sample_ids=tasks),
        config=EvalConfig(epochs=max((episode.rollout for episode in episodes), default=0) + 1),
        metadata=dict(source.metadata),
        viewer=_viewer_config(trusted=fenced),
    )
    results = EvalResults(
        total_samples=len(samples), completed_samples=len(samples), scores=list(_score_means(samples))
    )
    return EvalLog(
        status="started" if source.unfinished else "success",
        eval=spec,
        stats=EvalStats(started_at=source.created, completed_at=source.created),
        results=results,
        samples=samples,
    )


def _viewer_config(*, trusted: bool) -> Any:
    """Display options for Inspect: the columns of its table, coloured scores, whether the content is plain text."""
    from inspect_ai.viewer import ScoreColorScale, TaskSamplesColumn, TaskSamplesView, ViewerConfig

    colours = {
        JUDGE: ScoreColorScale(palette="diverging", min=-1, max=1),
        RIGHT: ScoreColorScale(palette="good-high", min=0, max=1),
    }
    columns = [TaskSamplesColumn(id=name) for name in FIRST]
    columns += [TaskSamplesColumn.score(name) for name in (OUTCOME, JUDGE, RIGHT)]
    columns += [TaskSamplesColumn(id=name, visible=name not in UNUSED) for name in THEN]
    view = TaskSamplesView(name="episodes", columns=columns, multiline=False, score_color_scales=colours)
    return ViewerConfig(trust_content=None if trusted else False, task_samples_view=view)


def _sample_of(episode: ShownEpisode, tokens: TokenCounts, *, fenced: bool) -> EvalSample:
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, ModelOutput, ModelUsage

    usage = ModelUsage(
        input_tokens=tokens.read, output_tokens=tokens.sampled, total_tokens=tokens.read + tokens.sampled
    )
    broke = printable(episode.error or "the environment broke") if episode.stop_reason == StopReason.ENV_ERROR else None
    last = _plain_message(episode.steps[-1].reply if episode.steps else "", fenced=fenced)
    answer = ChatMessageAssistant(id=f"{episode.trajectory_id}-last", content=last)
    return EvalSample(
        id=episode.task_id,
        epoch=episode.rollout + 1,
        uuid=episode.trajectory_id,
        input=_plain_input(episode.instruction, fenced=fenced),
        target="",
        messages=list(messages(episode, fenced=fenced)),
        output=ModelOutput(model="policy", choices=[ChatCompletionChoice(message=answer)]),
        scores=_episode_scores(episode),
        metadata=about(episode),
        model_usage={"policy": usage},
        error=None if broke is None else EvalError(message=broke, traceback="", traceback_ansi=""),
        limit=_limit_of(episode),
        turn_count=len(episode.steps),
    )


def messages(episode: ShownEpisode, *, fenced: bool) -> Iterator[Any]:
    """The episode as a conversation. Ids derive from episode and step, because Inspect would draw random ones."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser

    name = episode.trajectory_id
    if not episode.steps or episode.instruction not in episode.steps[0].observation:
        yield ChatMessageUser(id=f"{name}-task", content=_plain_message(episode.instruction, fenced=fenced))
    before: ShownStep | None = None
    for step in episode.steps:
        if before is not None and before.calls and not fenced:
            yield told_result_of(name, before, step.observation)
        else:
            yield ChatMessageUser(
                id=f"{name}-{step.index}-seen", content=observed(step.observation, step.images, fenced=fenced)
            )
        before = step
        yield ChatMessageAssistant(
            id=f"{name}-{step.index}-done",
            content=_plain_message(step.reply, fenced=fenced),
            metadata=_step_facts(step),
            tool_calls=[] if fenced else inspect_calls(name, step),
        )
    if before is not None and before.calls and not fenced:
        yield told_result_of(name, before, episode.verdict)
    elif episode.verdict.strip() or episode.last_images:
        yield ChatMessageUser(id=f"{name}-end", content=observed(episode.verdict, episode.last_images, fenced=fenced))


def observed(text: str, images: Sequence[bytes], *, fenced: bool) -> str | list[Any]:
    """The text of an observation, with its screenshots if it has any."""
    from inspect_ai.model import ContentImage, ContentText

    said = _plain_message(text, fenced=fenced)
    pictures = [f"data:image/png;base64,{base64.standard_b64encode(image).decode()}" for image in images]
    return [ContentText(text=said), *(ContentImage(image=one) for one in pictures)] if pictures else said


def _step_facts(step: ShownStep) -> dict[str, Any]:
    """The known facts of a step; facts that were not computed are absent."""
    facts: dict[str, Any] = {"step": step.index, "action": printable(step.action)}
    if not step.valid:
        facts["invalid"] = "no action could be read"
    for name, value in (("reward", step.reward), ("advantage", step.advantage)):
        if value is not None:
            facts[name] = rounded(value)
    if step.label is not None:
        facts["solver"] = "it helped" if step.label > 0 else "it did not help"
    known = [vote.score for vote in step.votes if vote.score is not None]
    if known:
        facts["mean_vote"] = rounded(fmean(known))
    return facts | {f"vote_{number}": _vote_said(vote) for number, vote in enumerate(step.votes, start=1)}


def _vote_said(vote: Vote) -> str:
    """One line, because the viewer folds lists: `+1, paid +0.90: it takes what the task needs`."""
    paid = "" if vote.reward is None else f", paid {vote.reward:+.2f}"
    return f"{SIGNS[vote.score]}{paid}: {printable(vote.text).strip()}"


def about(episode: ShownEpisode) -> dict[str, Any]:
    """Columns that the table of samples can be filtered by."""
    found = {
        "kind": episode.kind,
        "ended": str(episode.stop_reason),
        "steps": len(episode.steps),
        "invalid_actions": sum(not step.valid for step in episode.steps),
        "status": str(episode.status),
        "slot": episode.slot,
        "episode": episode.trajectory_id,
    }
    return {name: printable(value) if isinstance(value, str) else value for name, value in found.items()}


def _episode_scores(episode: ShownEpisode) -> dict[str, Score]:
    from inspect_ai.scorer import Score

    votes = [(step, vote.score) for step in episode.steps for vote in step.votes if vote.score is not None]
    known = [score == step.label for step, score in votes if step.label is not None]
    reward = "" if episode.reward is None else f", reward {episode.reward:.3g}"
    found = {OUTCOME: Score(value=GRADES[episode.won], explanation=f"{episode.ended}{reward}")}
    if votes:
        found[JUDGE] = Score(
            value=rounded(fmean(score for _, score in votes)),
            explanation=f"mean of {len(votes)} votes of the reward model",
        )
    if known:
        found[RIGHT] = Score(value=rounded(fmean(known)), explanation=f"{sum(known)} of {len(known)} votes are right")
    return found


def _score_means(samples: Sequence[EvalSample]) -> Iterator[Any]:
    """The line above the table: the mean of each score over the episodes that have it."""
    from inspect_ai.log import EvalMetric, EvalScore

    for name, measure in ((OUTCOME, "won"), (JUDGE, "mean vote"), (RIGHT, "share right")):
        values = [sample.scores[name].value for sample in samples if sample.scores and name in sample.scores]
        if values:
            mean = fmean(float(value == GRADES[True]) if isinstance(value, str) else value for value in values)
            yield EvalScore(
                name=name,
                scorer=name,
                scored_samples=len(values),
                unscored_samples=len(samples) - len(values),
                metrics={measure: EvalMetric(name=measure, value=mean)},
            )


def _limit_of(episode: ShownEpisode) -> Any:
    """The limit that ended the episode, in Inspect's words."""
    from inspect_ai.log import EvalSampleLimit

    match episode.stop_reason:
        case StopReason.MAX_STEPS:
            return EvalSampleLimit(type="turn", limit=len(episode.steps), reason="as many steps as it may take")
        case StopReason.CONTEXT:
            return EvalSampleLimit(type="context", limit=len(episode.steps), reason="the next prompt would not fit")
    return None


def _plain_message(text: str, *, fenced: bool) -> str:
    """Text without control characters. If the viewer reads Markdown, it is in a fence longer than any inside."""
    shown = printable(text)
    if not fenced:
        return shown
    marks = "`" * max((len(found) + 1 for found in FENCE.findall(shown)), default=3)
    return f"{marks}\n{shown}\n{marks}"


def _plain_input(text: str, *, fenced: bool) -> str:
    """The task for the viewer's heading. The viewer would shorten a fenced text inside the fence, so it is cut here;
    the messages have all of it.
    """
    return _plain_message(one_line(text, LONGEST_INPUT).replace("`", "'") if fenced else text, fenced=fenced)


def rounded(value: float) -> float:
    return round(value, DIGITS)
