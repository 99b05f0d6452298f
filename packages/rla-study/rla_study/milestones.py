"""What `rla run` says between stages and at its end, beside the line of each stage.

at the beginning      whether the run fits into memory
before training       success on the held-out tasks with its interval, before a warm start and after it, and a won
                      and a lost episode in short
after an iteration    how long it took, the time left, the cost so far
at the end            the cost, where the policy lies, the command that serves it, and the one that goes on
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from rla.config import Config
from rla.errors import UserError
from rla.models.checkpoint import base_of, open_checkpoint
from rla.pipeline.plan import Plan
from rla.processes.workers import usable_cores
from rla.report.build import Passed
from rla.report.collect import collect, recorded_calls, seconds_of, titled_splits
from rla.report.render import terminal_width
from rla.report.tables import LOOP, bounds, percent
from rla.rollouts.labels import LABELS
from rla.showing.drawing import draw
from rla.showing.episodes import Excerpt, Played, episode_frame, evaluated_in, read_episodes_whole
from rla.store.layout import UNTRAINED, artifact
from rla.store.record import read_json
from rla.store.records import StopReason
from rla.store.texts import counted, duration
from rla_study.planning.before import foreseen

ENDS = 2  # steps at the beginning and at the end of an episode that is shown in short


class DuringRun:
    """Registered in the group `rla.tables`; it has the member of `rla.report.build.Accompanies`."""

    def accompany(self, plan: Plan, run: Path, config: Config, say: Callable[[str], None]) -> Passed:
        milestones = Milestones(plan=plan, run=run, config=config, say=say)
        milestones.begin()
        return milestones.passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestones:
    """Of one call of `rla run`."""

    plan: Plan  # as it was asked for
    run: Path
    config: Config
    say: Callable[[str], None]

    def begin(self) -> None:
        """Nothing is loaded yet. A run that goes on has said it before."""
        if self.plan.overwrite or not self.run.exists():
            self.say(foreseen(self.config))

    def passed(self, stage: str, following: Sequence[str]) -> None:
        """As `Accompanies` says. A damaged record of times, for example, is named and stops nothing."""
        try:
            self._tell(stage, following)
        except (UserError, OSError) as error:
            self.say(f"nothing to say after {stage or 'the report'}: {error}")

    def _tell(self, stage: str, following: Sequence[str]) -> None:
        name, _, number = stage.partition("@")
        if name == "evaluate-untrained":
            self.say(success_text(read_json(self.run / UNTRAINED / "metrics.json"), "untrained"))
        if not stage:
            self.say("\n".join(closing_lines(self.plan, self.run, self.config)))
        elif stage == "evaluate@0":
            self.say("\n".join(first_success(self.run, self.config)))
        elif name in LOOP and number not in (iterations := iterations_of(following)):
            evaluations = sum(one.startswith("evaluate@") for one in following)
            self.say(time_left(self.run, int(number), len(iterations), evaluations))


def iterations_of(stages: Sequence[str]) -> set[str]:
    """The iterations that stages of the loop belong to."""
    return {number for name, _, number in (one.partition("@") for one in stages) if name in LOOP}


def first_success(run: Path, config: Config) -> Iterator[str]:
    """Of iteration 0 on every held-out split, then excerpts of the main one."""
    trained = "after the warm start" if config.warm_start.enabled else "before training"
    for found in titled_splits(collect(run)):
        for row in found.evaluations[:1]:
            yield success_text(row, f"on {found.split} {trained}" if found.split else trained)
    excerpts = won_and_lost(evaluated_in(run, config, 0, config.tasks.test_splits[0]), config)
    stream = io.StringIO()
    draw(excerpts, stream, width=terminal_width())
    yield stream.getvalue().rstrip("\n")
    if len({one.episode.won for one in excerpts}) == 1:
        yield f"no episode was {'lost' if excerpts[0].episode.won else 'won'}"


def success_text(row: Mapping[str, Any], of: str) -> str:
    """`held-out success untrained: 0.0% of 96 episodes, 95% interval 0.0-3.8%`."""
    return (
        f"held-out success {of}: {percent(row['success'])} of {counted(row['episodes'], 'episode')}, "
        f"95% interval {bounds(row)}"
    )


def time_left(run: Path, iteration: int, iterations: int, evaluations: int) -> str:
    """`iteration 1 took 3 min 20 s; 2 left: about 7 min; so far 0.4 core hours`. An iteration that is to come is taken
    to need as long as this one, an evaluation as long as that of iteration 0.
    """
    seconds = seconds_of(run)
    spent = sum(seconds.get((iteration, stage), 0.0) for stage in LOOP)
    ahead = iterations * spent + evaluations * seconds.get((0, "evaluate"), 0.0)
    left = f"; {iterations} left: about {duration(ahead)}" if iterations else ""
    return f"iteration {iteration} took {duration(spent)}{left}; so far {cost(run)}"


def cost(run: Path) -> str:
    """`0.21 GPU hours` of stages that used a GPU; of a run that used none `0.42 core hours`, of all cores."""
    calls = [call for calls in recorded_calls(run) for call in calls if not call.part]
    used = [(call, device) for call in calls for device in call.devices]
    if not used:
        return f"{usable_cores() * sum(call.seconds for call in calls) / 3600:.2g} core hours"
    seconds = (sum(end - start for start, end in one.spans) if one.spans else call.seconds for call, one in used)
    return f"{sum(seconds) / 3600:.2g} GPU hours"


def won_and_lost(played: Played, config: Config) -> list[Excerpt]:
    """The first episode that was won and the first that was lost, as far as there are any, by their first and last
    steps.
    """
    table = episode_frame(played).filter(pl.col("stop_reason") != StopReason.ENV_ERROR)
    ids = [*table.filter(outcome=1)["trajectory_id"][:1], *table.filter(outcome=-1)["trajectory_id"][:1]]
    whole = read_episodes_whole(played, ids, config, labels=pl.DataFrame(schema=LABELS))
    ends = {name: {step.index for step in (*one.steps[:ENDS], *one.steps[-ENDS:])} for name, one in whole.items()}
    return [Excerpt(episode=whole[name], steps=sorted(ends[name])) for name in ids]


def closing_lines(plan: Plan, run: Path, config: Config) -> Iterator[str]:
    folder = artifact(run, "policy", plan.iterations)
    checkpoint = open_checkpoint(folder)
    base = base_of(checkpoint.model)
    yield f"cost: {cost(run)}"
    if base is None:
        yield f"policy: {folder / 'model'}"
        served = [str(folder / "model"), "--served-model-name", "policy"]
    else:
        yield f"policy: {checkpoint.adapter}, an adapter over {base.folder}"
        served = [str(base.folder), "--enable-lora", "--max-lora-rank", str(config.train_policy.lora.rank)]
        served += ["--lora-modules", f"policy={checkpoint.adapter}"]
    yield f"to serve it: {shlex.join(['vllm', 'serve', *served])}"
    yield f"to go on: {next_call(plan)}"


def next_call(plan: Plan) -> str:
    """The call that goes on with as many iterations again."""
    words = ["rla", "run", "--iterations", str(2 * plan.iterations)]
    words += ["--evaluate-every", str(plan.evaluate_every)] if plan.evaluate_every else []
    words += ["--params", str(plan.params)] if plan.params != Plan(iterations=1).params else []
    words += ["--run", str(plan.run)] if plan.run else []
    words += ["--seed", str(plan.seed)] if plan.seed is not None else []
    words += [word for text in plan.overrides for word in ("--set", text)]
    return shlex.join(words)
