"""The first replies of a stage: shown at the start of a run, and checked before hours are spent on unreadable ones.

The guards (`rla.metrics.guards`) speak once a stage has ended, which may take hours. If none of the first `ENOUGH`
replies holds an action, or no judgement a vote, all others share the cause. The stage then shows one reply with the
likely cause, and ends if `guards.stop` has `first-replies`.

Of the first reply and the first vote of a run the stage shows the end of the prompt, the reply, and the action or vote
that was read in it; after `ENOUGH` of them, how many could be read and how fast they came.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args, get_type_hints

from rla.config import Config
from rla.config.sections import GuardName, JudgeConfig, PolicyConfig
from rla.envs.protocols import Env, Judged, Probes
from rla.envs.registry import environment
from rla.errors import UserError
from rla.llm.chat import ChatFormat
from rla.models.init import UNKNOWN
from rla.pipeline import StageContext
from rla.store.layout import SPLITS, artifact
from rla.store.manifest import is_complete
from rla.store.records import Step, StepScore
from rla.text import counted, one_line, open_thought, printable

EXCERPT = 200  # characters of the reply in an error
SHOWN, LINES = 800, 12  # characters and lines of a text that is shown
ENOUGH = 32  # replies: a model that can be read one time in ten is stopped by mistake in 3 of 100 runs


@dataclass(frozen=True, slots=True)
class _FirstReply:
    """The reply of a model. `read`: the action or vote in it, if any; `commands`: those offered to a policy."""

    text: str
    truncated: bool
    read: str | None
    commands: tuple[str, ...] = ()


class FirstReplies:
    """The first replies of one stage, to a policy's prompts or a judge's. `model`: the checkpoint that replies; None
    for a chat server. `aloud`: the first reply is shown if the run has none before it.
    """

    def __init__(self, ctx: StageContext, guard: GuardName, model: Path | None, *, aloud: bool = False) -> None:
        self._ctx, self._model, self._policy = ctx, model, guard == "no-action"
        self._guard = guard
        if ctx.iteration == 0:  # the evaluation of the main split comes first
            begins_run = SPLITS not in ctx.path("out").parts
        else:
            earlier = ("eval_trajectories",) if self._policy else ("probe_scores", "eval_scores")
            begins_run = ctx.iteration == 1 and not any(is_complete(artifact(ctx.run, name, 0)) for name in earlier)
        self._aloud = aloud and begins_run
        self._first: list[_FirstReply] = []
        self._chat: ChatFormat | None = None
        self._began, self._tokens, self._checked = time.monotonic(), 0, False

    def begin(self, chat: ChatFormat | None) -> None:
        """The engine is loaded, and seconds count from here. `chat`: decodes prompts; None for a chat server."""
        self._began, self._chat = time.monotonic(), chat

    def replied(self, step: Step, segment_ids: Sequence[int]) -> None:
        """Raises UserError, or warns, if this is the last of the first replies and none of them holds an action.

        `segment_ids`: prompt and reply.
        """
        if not self._checked:
            read = f"the action: {one_line(step.action, EXCERPT)}" if step.valid else None
            reply = _FirstReply(step.reply, step.truncated, read, tuple(step.commands))
            self._add([reply], step.end - step.start, segment_ids[: step.start])

    def voted(self, score: StepScore) -> None:
        """Raises UserError, or warns, if these are the last of the first judgements and none of them can be read."""
        votes = [vote for vote in score.judgements if vote.token_ids or vote.text]
        if votes and not self._checked:
            replies = [
                _FirstReply(vote.text, vote.truncated, None if vote.score is None else f"the vote {vote.score:+d}")
                for vote in votes
            ]
            self._add(replies, sum(len(vote.token_ids) for vote in votes), score.prompt_ids)

    def end(self) -> None:
        """All replies of the stage are there: check them if they were fewer than `ENOUGH`."""
        if self._first and not self._checked:
            self._check()

    def _add(self, replies: Sequence[_FirstReply], tokens: int, prompt_ids: Sequence[int]) -> None:
        if self._aloud and not self._first:
            self._show(replies[0], prompt_ids)
        self._first += replies
        self._tokens += tokens
        if len(self._first) >= ENOUGH:
            self._check()

    def _show(self, reply: _FirstReply, prompt_ids: Sequence[int]) -> None:
        """The first reply of a run in full. Each line of a model stands behind a bar, so it cannot pass for ours."""
        who = "policy" if self._policy else "reward model"
        lines = [f"the first reply of the {who}:"]
        if self._chat is not None:
            asked = printable(self._chat.decode(prompt_ids)[-SHOWN:]).strip().splitlines()
            lines = [f"the first prompt of the {who}, of {counted(len(prompt_ids), 'token')}, ends"]
            lines += [f"    | {line}" for line in asked[-LINES:]]
            lines.append("and its reply is" + (", cut by max_tokens," if reply.truncated else ""))
        said = printable(reply.text[:SHOWN]).strip().splitlines() or ["(empty)"]
        cut = ["..."] if len(reply.text) > SHOWN or len(said) > LINES else []
        lines += [f"    | {line}" for line in (*said[:LINES], *cut)]
        self._ctx.progress.note(
            "\n".join([*lines, f"read as {reply.read}" if reply.read else "nothing could be read in it"])
        )

    def _check(self) -> None:
        self._checked = True
        count, read = len(self._first), sum(reply.read is not None for reply in self._first)
        votes = "tests" if isinstance(environment(self._ctx.config.env.name), Probes) else "votes"
        holds = "replies hold an action" if self._policy else f"{votes} can be read"
        if self._aloud:
            seconds = time.monotonic() - self._began
            rate = f", {self._tokens / max(seconds, 1e-9):.0f} tokens a second" if self._tokens else ""
            self._ctx.progress.note(f"{read} of the first {count} {holds}; they took {seconds:.1f} s{rate}")
        if read:
            return
        shown = one_line(self._first[0].text[: 4 * EXCERPT], EXCERPT)
        said = f"none of the first {count} {holds}, and the first is {shown!r}; {self._cause()}"
        # Before its warm start a model need not know the form yet: the loop goes on to teach it.
        if "first-replies" in self._ctx.config.guards.stop and not self._before_warm_start():
            raise UserError(f"{said}. If they are to count as they are, take first-replies out of guards.stop")
        self._ctx.progress.note(f"warning ({self._guard}): {said}")

    def _before_warm_start(self) -> bool:
        """Whether this evaluates a model that exists before the warm start that its run has."""
        ctx = self._ctx
        initial = self._model == artifact(ctx.run, "init_policy", 0)
        return initial and ctx.iteration == 0 and ctx.config.teaches_pretrained

    def _cause(self) -> str:
        """The likely cause and its remedy."""
        replies, config = self._first, self._ctx.config
        role, section, key = ("policy",) * 3 if self._policy else ("rm", "judge", "reward")
        if self._before_warm_start():
            return "the warm start, which comes next, teaches the form"
        if self._model == artifact(self._ctx.run, f"init_{role}", 0) and getattr(config.model, key) == "init":
            first = "" if config.warm_start.enabled else "set warm_start.enabled: true and "
            return f"the model is not trained yet: {first}call `rla warm-start`, or name a trained one in model.{key}"
        if _most([reply.truncated for reply in replies]):
            thinks = any(open_thought(reply.text) for reply in replies)
            limit = f"{section}.max_tokens, which is {getattr(config, section).max_tokens}"
            return f"{'its thoughts do not end within' if thinks else 'most are cut by'} {limit}: raise it"
        if not any(reply.text.strip() for reply in replies):
            return f"all are empty: see that model.{key} is a chat model whose template ends a turn as the engine does"
        if any(UNKNOWN in reply.text for reply in replies):
            return f"its tokenizer lacks words that it has to write: `rla envs --check {config.env.name}` names them"
        env = environment(config.env.name)
        return _unread_actions(env, config, replies) if self._policy else _unread_votes(env, config, replies)


def _unread_actions(env: Env, config: Config, replies: Sequence[_FirstReply]) -> str:
    """Why a policy's replies are not read: it writes in another form of `policy.reply`, or none of the commands."""
    told, own = config.policy.reply, env.policy_prompt(config)
    for form in get_args(get_type_hints(PolicyConfig)["reply"]):
        prompt = env.policy_prompt(replace(config, policy=replace(config.policy, reply=form)))
        read = [bool(one.commands and prompt.parse(one.text, one.commands)) for one in replies]
        if prompt != own and _most(read):
            return f"the model writes as policy.reply: {form} asks for, and it is {told}: set it to {form}"
    if all(reply.commands for reply in replies):
        missed = "one of the commands offered" if told == "text" else f"of the form of policy.reply: {told}"
        return (
            f"none is {missed}: set policy.reply: text and policy.decoding: admissible, which leaves only the commands"
        )
    return f"the model does not answer as the prompt of {config.env.name} asks: teach it first (warm_start)"


def _unread_votes(env: Env, config: Config, replies: Sequence[_FirstReply]) -> str:
    """Why a reward model's replies are not read: it writes in the form of the other `judge.prompt`, or in neither."""
    told, remedy = config.judge.prompt, "take a model that does"
    if isinstance(env, Judged):
        for form in get_args(get_type_hints(JudgeConfig)["prompt"]):
            prompt = env.judge_prompt(replace(config, judge=replace(config.judge, prompt=form)))
            if form != told and _most([prompt.parse(one.text) is not None for one in replies]):
                return f"the model writes as judge.prompt: {form} asks for, and it is {told}: set it to {form}"
            if form == "plain" and config.judge.trains and prompt.replies():
                remedy = "set judge.prompt: plain and judge.decoding: admissible, which leaves only votes"
    return f"the model does not answer as the prompt of judge.prompt: {told} asks: {remedy}"


def _most(held: Sequence[bool]) -> bool:
    return 2 * sum(held) > len(held)
