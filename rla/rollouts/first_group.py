"""A first look at what a model writes: if nothing in the first group of a stage can be read, the stage says so at once.

The guards (`rla.metrics.guards`) speak once a stage has ended, which may take hours. If no reply of a whole group holds
an action, or no judgement a vote, the other groups share the cause. The stage then shows one reply with the likely
cause, and ends unless `guards.first_group` is `warn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args, get_type_hints

from rla.config import Config
from rla.config.sections import GuardName, JudgeConfig, PolicyConfig
from rla.envs.protocols import Env, Judged, Probes
from rla.envs.registry import environment
from rla.errors import UserError
from rla.folding import one_line
from rla.models.tokenizer import UNKNOWN
from rla.pipeline.context import StageContext
from rla.store.layout import artifact
from rla.store.records import StepScore, Trajectory
from rla.thoughts import open_thought

SHOWN = 200  # characters of the reply that is shown
ENOUGH = 8  # replies, or all that a stage asks for: a group of one-step episodes may be a hard task's


@dataclass(frozen=True, slots=True)
class FirstReply:
    """What a model wrote. `commands`: those offered to a policy."""

    text: str
    truncated: bool
    read: bool
    commands: tuple[str, ...] = ()


class FirstGroup:
    """Of one stage. `model`: the checkpoint that replies; None for a chat server. `total`: replies that the stage asks
    for, at least.
    """

    def __init__(self, ctx: StageContext, model: Path | None, *, total: int = ENOUGH) -> None:
        self._ctx, self._model, self._enough = ctx, model, min(ENOUGH, total)
        self._looked, self._unread = False, list[FirstReply]()

    def played(self, trajectories: Sequence[Trajectory]) -> None:
        """UserError, or a warning, if no reply of the first group holds an action."""
        replies = [
            FirstReply(step.reply, step.truncated, step.valid, tuple(step.commands))
            for episode in trajectories
            for step in episode.steps
        ]
        self._look("no-action", replies, "replies of the first group holds an action")

    def judged(self, scores: Sequence[StepScore]) -> None:
        """UserError, or a warning, if no judgement of the first group can be read."""
        votes = [vote for score in scores for vote in score.judgements if vote.token_ids or vote.text]
        replies = [FirstReply(vote.text, vote.truncated, vote.score is not None) for vote in votes]
        probes = isinstance(environment(self._ctx.config.env.name), Probes)
        self._look("unreadable-votes", replies, f"{'tests' if probes else 'votes'} of the first group can be read")

    def _look(self, guard: GuardName, replies: Sequence[FirstReply], what: str) -> None:
        if self._looked:
            return
        self._unread += replies
        self._looked = any(reply.read for reply in replies) or len(self._unread) >= max(1, self._enough)
        if any(reply.read for reply in replies) or not self._looked:
            return
        shown = one_line(self._unread[0].text[: 4 * SHOWN], SHOWN)
        cause = self._cause(guard, self._unread)
        said = f"none of the {len(self._unread)} {what}, and the first is {shown!r}; {cause}"
        if self._ctx.config.guards.first_group == "stop":
            raise UserError(f"{said}. If they are to count as they are, set guards.first_group: warn")
        self._ctx.progress.note(f"warning ({guard}): {said}")

    def _cause(self, guard: GuardName, replies: Sequence[FirstReply]) -> str:
        """The likely cause and its remedy."""
        config, env = self._ctx.config, environment(self._ctx.config.env.name)
        role, section, key = ("policy",) * 3 if guard == "no-action" else ("rm", "judge", "reward")
        if self._model == artifact(self._ctx.run, f"init_{role}", 0) and getattr(config.model, key) == "init":
            first = "" if config.warm_start.enabled else "set warm_start.enabled: true and "
            return f"the model is not trained yet: {first}call `rla warm-start`, or name a trained one in model.{key}"
        if most([reply.truncated for reply in replies]):
            thinks = any(open_thought(reply.text) for reply in replies)
            limit = f"{section}.max_tokens, which is {getattr(config, section).max_tokens}"
            return f"{'its thoughts do not end within' if thinks else 'most are cut by'} {limit}: raise it"
        if not any(reply.text.strip() for reply in replies):
            return f"all are empty: see that model.{key} is a chat model whose template ends a turn as the engine does"
        if any(UNKNOWN in reply.text for reply in replies):
            return f"its tokenizer lacks words that it has to write: `rla check-env {config.env.name}` names them"
        return other_action(env, config, replies) if guard == "no-action" else other_vote(env, config, replies)


def other_action(env: Env, config: Config, replies: Sequence[FirstReply]) -> str:
    """Why a policy's replies are not read: it writes in another form of `policy.reply`, or none of the commands."""
    told, own = config.policy.reply, env.policy_prompt(config)
    for form in get_args(get_type_hints(PolicyConfig)["reply"]):
        prompt = env.policy_prompt(replace(config, policy=replace(config.policy, reply=form)))
        read = [bool(one.commands and prompt.parse(one.text, one.commands)) for one in replies]
        if prompt != own and most(read):
            return f"the model writes as policy.reply: {form} asks for, and it is {told}: set it to {form}"
    if all(reply.commands for reply in replies) and told == "text":
        return "none is one of the commands offered: set policy.decoding to admissible, or take a model that knows them"
    return f"the model does not answer as the prompt of {config.env.name} asks: compare the two in `rla show`"


def other_vote(env: Env, config: Config, replies: Sequence[FirstReply]) -> str:
    """Why a reward model's replies are not read: it writes in the form of the other `judge.prompt`, or in none."""
    told = config.judge.prompt
    for form in get_args(get_type_hints(JudgeConfig)["prompt"]):
        if form == told or not isinstance(env, Judged):
            continue
        prompt = env.judge_prompt(replace(config, judge=replace(config.judge, prompt=form)))
        if most([prompt.parse(one.text) is not None for one in replies]):
            return f"the model writes as judge.prompt: {form} asks for, and it is {told}: set it to {form}"
    return f"the model does not answer as the prompt of judge.prompt: {told} asks: compare the two in `rla show`"


def most(held: Sequence[bool]) -> bool:
    return 2 * sum(held) > len(held)
