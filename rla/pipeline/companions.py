"""Stages that run beside another one, with `launch.together`: those that need nothing of what it makes.

| `launch.together` has | beside | runs |
|---|---|---|
| `judging` | `rollout` | `score-steps --follow`, which judges each group as soon as it is played |
| `training` | `train-policy` | `train-rm` |
| `adapting` | `train-policy` | `adapt-env`, where it asks no engine whose GPU the training has |

DVC calls one stage at a time. So a stage that DVC has called starts its companions itself, and ends when they have
ended. A companion that would take the GPUs of the stage itself is not started. When DVC then calls the companions in
their turn, they find their outputs complete, or go on where they stopped. So nothing depends on a companion: one that
fails, or whose stage is killed, is made up for in its turn.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rla.config.upkeep import ON_RAY
from rla.pipeline.again import called_again
from rla.pipeline.ahead import planned_loop
from rla.pipeline.context import StageContext
from rla.processes.workers import (
    ON_GPUS,
    exit_text,
    interrupt,
    listen,
    start_worker,
    visible_gpus,
    worker_environment,
)


def companions_of(ctx: StageContext) -> list[list[str]]:
    """Name and options of the stages that may run beside this call; none outside of a loop that DVC turns."""
    together, judge = ctx.config.launch.together, ctx.config.judge
    if not together or ctx.paths or planned_loop(ctx.run) is None:
        return []
    launch = ctx.config.launch
    if ctx.spec.name == "rollout" and "judging" in together and judge.enabled and judge.tasks == "all":
        fits = launch.stage == "local" and not (ctx.config.generator.backend in ON_GPUS and visible_gpus())
        return [["score-steps", "--follow"]] if fits else []
    found = []
    if ctx.spec.name == "train-policy" and "training" in together and judge.enabled:
        fits = two_train_on_ray(ctx) if launch.training == ON_RAY else not visible_gpus()
        found += [["train-rm"]] if fits else []
    if ctx.spec.name == "train-policy" and "adapting" in together and not proposes_by_engine(ctx):
        found.append(["adapt-env"])
    return found


def two_train_on_ray(ctx: StageContext) -> bool:
    """Whether the cluster has room for the training beside this one. Raises UserError where there is no cluster, or
    one without room for this one alone.
    """
    from rla.processes.ray_connection import connected
    from rla.processes.ray_crew import living_resources, two_fit

    ray = connected(ctx.config.generator.ray.address, what="launch.training ray")
    return two_fit(ctx.config.launch, living_resources(ray))


def proposes_by_engine(ctx: StageContext) -> bool:
    """Whether `adapt-env` asks an engine, whose memory the training beside it takes."""
    adaptation = ctx.config.adaptation
    if not adaptation.enabled or adaptation.proposer != "llm":
        return False
    return not adaptation.llm.server and ctx.config.generator.backend != "server"


@contextmanager
def beside(ctx: StageContext) -> Iterator[None]:
    """Run the companions of a stage with the block, and wait for them at its end. Where the block fails they end."""
    names = companions_of(ctx)
    if not names:
        yield
        return
    with called_again(ctx, {}) as arguments:
        more = ["--overwrite"] if ctx.overwrite else []
        calls = [[stage, *arguments[1:], *options, *more] for stage, *options in names]
        ctx.progress.note(f"{ctx.spec.name}: runs {' and '.join(stage for stage, *_ in names)} beside it")
        running: list[subprocess.Popen[bytes]] = []
        try:
            environment = worker_environment(workers=1 + len(calls), gpus=[])
            for call in calls:
                running.append(start_worker(call, environment))
            listeners = [listen(one, f"[{call[0]}] ") for call, one in zip(calls, running, strict=True)]
            yield
            codes = [process.wait() for process in running]
            for listener in listeners:
                listener.join()
            say_failures(ctx, [call[0] for call in calls], codes)
        except BaseException:
            interrupt([process for process in running if process.poll() is None])
            raise
        finally:
            for process in running:
                if process.stdin is not None:
                    process.stdin.close()


def say_failures(ctx: StageContext, stages: Sequence[str], codes: Sequence[int]) -> None:
    for stage, code in zip(stages, codes, strict=True):
        if code:
            ctx.progress.note(f"{stage}, beside {ctx.spec.name}: {exit_text(code)}; it is called again in its turn")
