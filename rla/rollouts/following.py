"""`score-steps --follow`: groups are judged as soon as `rollout` has played them, while it plays the others.

Parts of the trajectories are judged as they appear, and what is said of them is kept beside the scores
(`rla.rollouts.judged_ahead`) until the trajectories have their manifest. What follows is a plain call of `score-steps`
that finds nearly everything judged: so the scores shard is the same byte for byte, whenever either of the two was
killed and called again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from rla.errors import UserError
from rla.llm.factory import verified_once
from rla.pipeline.context import StageContext
from rla.pipeline.dividing import call_slices, on_cluster, slice_of
from rla.pipeline.origins import run_async
from rla.pipeline.restoring import make_whole
from rla.rollouts.judged_ahead import JudgedAhead
from rla.rollouts.score_shard import COLUMNS, PlayedTask, ask_about
from rla.store.growing import GrowingShard
from rla.store.origin import Origin
from rla.store.parts import group_of
from rla.store.reading import part_rows
from rla.store.records import StepScore
from rla.store.sizes import counted
from rla.store.slices import MANIFEST, STARTED, Slice, optional_record, record_digest

POLL = 0.5  # seconds between two looks at the folder
TIMEOUT = 3600.0  # seconds without news; `--follow-timeout`
SAID_EVERY = 60.0  # seconds between two notes of how far it is


def followed_shard(ctx: StageContext) -> GrowingShard | None:
    """With `--follow` the trajectories, once a rollout has begun them; else None. Raises UserError where that takes
    longer than `--follow-timeout`, and where they cannot be judged before all are played.
    """
    if not ctx.options.get("follow"):
        if "follow_timeout" in ctx.options:
            raise UserError("--follow-timeout says how long --follow waits; give both, or neither")
        return None
    if ctx.config.judge.enabled and ctx.config.judge.tasks == "training":
        raise UserError(
            "--follow: with judge.tasks training, the verdicts say what is judged, and they come after the whole "
            "rollout; call score-steps without --follow, or with --set judge.tasks=all"
        )
    if on_cluster(ctx):
        raise UserError(
            "--follow: with launch.stage slurm the engines would start on this machine; call score-steps without "
            "--follow, or say --workers or --slice where that is meant"
        )
    growing = GrowingShard(ctx.path("trajectories"), "trajectories")
    growing.look()
    if not growing.begun:
        ctx.progress.note(f"{ctx.spec.name}: waits for a rollout to begin {growing.folder}")
    waiting, began = Waiting(growing.folder, news_limit(ctx)), time.monotonic()
    while not growing.begun:
        waiting.check()
        time.sleep(POLL)
        growing.look()
    add_idle(ctx, time.monotonic() - began)
    return growing


def add_idle(ctx: StageContext, seconds: float) -> None:
    """`idle_seconds` of the call, which stand with its times."""
    ctx.measured["idle_seconds"] = round(ctx.measured.get("idle_seconds", 0.0) + seconds, 3)


def news_limit(ctx: StageContext) -> float:
    return float(ctx.options.get("follow_timeout", TIMEOUT))


class Waiting:
    """How long nothing new has come."""

    def __init__(self, folder: Path, limit: float) -> None:
        self.folder, self.limit, self.heard = folder, limit, time.monotonic()

    def news(self) -> None:
        self.heard = time.monotonic()

    def check(self) -> None:
        """UserError where it has been too long."""
        if time.monotonic() - self.heard > self.limit:
            raise UserError(
                f"{self.folder}: nothing new for {self.limit:g} s; see whether the rollout that makes it still runs, "
                "call it again where it does not, then this call: it goes on with what is left. --follow-timeout "
                "says how long it waits"
            )


def judge_ahead(ctx: StageContext, growing: GrowingShard, made_from: Origin, rm: Path | None) -> None:
    """Judge groups as they are played, until all are. `made_from`: of the scores, but for the trajectories. The call
    that starts workers leaves it to them.
    """
    share, out = slice_of(ctx), ctx.path("out")
    refuse_unlike_scores(out, made_from, replaces=ctx.overwrite or share.replaces is not None)
    if rm:
        make_whole(ctx, "rm")
    if share.index == 0:
        limit = ["--follow-timeout", str(ctx.options["follow_timeout"])] if "follow_timeout" in ctx.options else []
        replaced = next((path for path in (out / MANIFEST, out / STARTED) if path.is_file()), None)
        call_slices(
            ctx,
            share,
            check=partial(verified_once, ctx.config.generator, rm),
            replaced=record_digest(replaced) if replaced and ctx.overwrite else None,
            more=["--follow", *limit],
        )
        return
    ahead = JudgedAhead.beside(out, made_from, judge=list(made_from.inputs.values()))
    follower = Follower(ctx, growing, ahead, share)
    ctx.progress.note(f"{ctx.spec.name}: follows {growing.folder}")
    if ctx.config.judge.enabled:
        ask_about(ctx, follower.tasks(), rm, pools=("pool", "candidates"), finished=follower.finished)
    else:
        run_async(follower.to_the_end())
    add_idle(ctx, follower.idle)


def refuse_unlike_scores(scores: Path, made_from: Origin, *, replaces: bool) -> None:
    """UserError, before anything is judged, where scores of other parameters or another judge lie here and stay."""
    found = optional_record(scores, MANIFEST) or optional_record(scores, STARTED)
    if replaces or found is None:
        return
    record = found[1]
    played = dict(record.get("input_digests", {})).get("0", "")  # what these were made from stands first
    shifted = {str(int(name) + 1): one for name, one in made_from.inputs.items()}
    folders = {str(int(name) + 1): one for name, one in made_from.folders.items()}
    own = replace(made_from, inputs={"0": played, **shifted}, folders=folders)
    if any(record.get(key) != value for key, value in own.as_json().items()):
        raise UserError(f"{scores}: {own.unlike(record)}; rerun with --overwrite or choose another folder")


class Follower:
    """Played groups of one slice as they appear, and what is said of them. `idle`: seconds in which there was nothing
    to judge.
    """

    def __init__(self, ctx: StageContext, growing: GrowingShard, ahead: JudgedAhead, share: Slice) -> None:
        self.ctx, self.growing, self.ahead, self.share = ctx, growing, ahead, share
        self.waiting = Waiting(growing.folder, news_limit(ctx))
        self.asked: list[tuple[int, str]] = []  # group and digest of what was handed out, by position
        self.judged, self.steps, self.idle = 0, 0, 0.0
        self.said = time.monotonic()

    async def tasks(self) -> AsyncIterator[PlayedTask]:
        """Until the shard is complete and all of its parts were looked at."""
        while True:
            self.growing.look()
            complete = self.growing.complete  # asked before the parts: then all of them are there
            fresh = self.growing.new_parts()
            for part in fresh:
                if self.share.takes(group_of(part)) and (task := self._played(part)) is not None:
                    yield task
            if complete:
                return
            await self._wait(news=bool(fresh))

    async def to_the_end(self) -> None:
        """Where nobody judges."""
        async for _ in self.tasks():
            pass

    def finished(self, position: int, scores: list[StepScore]) -> None:
        self.ahead.write(*self.asked[position], [score.row() for score in scores])
        self.judged, self.steps = self.judged + 1, self.steps + len(scores)

    def _played(self, part: Path) -> PlayedTask | None:
        """None where nothing is left to judge now: it was judged before a kill, or is left to the end because it is not
        the steps of one task.
        """
        entry = self.growing.entry(part)
        if entry is None or self.ahead.rows(group_of(part), entry["sha256"]) is not None:
            return None
        try:
            rows = [row for row in part_rows(part, COLUMNS, kind="trajectories", entry=entry) if row["steps"]]
        except UserError:  # replaced, or removed, in this moment
            return None
        names = {row["task_id"] for row in rows}
        if len(names) != 1 or not self.ctx.config.judge.enabled:
            return None
        self.asked.append((group_of(part), entry["sha256"]))
        steps = sum(len(row["steps"]) for row in rows)
        return PlayedTask(task_id=names.pop(), parts={part: entry}, steps=steps, held=rows)

    async def _wait(self, *, news: bool) -> None:
        if news or self.judged < len(self.asked):
            self.waiting.news()
        self.waiting.check()
        if time.monotonic() - self.said > SAID_EVERY:
            self.said = time.monotonic()
            judged = f"{counted(self.judged, 'group')} of {len(self.asked)} judged, {counted(self.steps, 'step')}"
            self.ctx.progress.note(f"{self.ctx.spec.name}: {judged}; waits for more")
        nothing, began = self.judged == len(self.asked), time.monotonic()
        await asyncio.sleep(POLL)
        if nothing:
            self.idle += time.monotonic() - began
