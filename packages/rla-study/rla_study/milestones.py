"""Messages of `rla run` between stages and at its end, in addition to the line of each stage.

at the beginning      whether the run fits into memory
before training       success on the held-out tasks with its interval, before a warm start and after it, each with a
                      won and a lost episode in short
after an iteration    how long it took, the time left, the cost so far
at the end            the cost, the policy's path, the command that serves it, and the command that continues
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import polars as pl

from rla.config import Config
from rla.config.sections import LoraRank
from rla.errors import UserError
from rla.models.checkpoint import open_checkpoint, parts_of
from rla.pipeline.plan import Plan
from rla.processes import usable_cores
from rla.report.collect import collect, recorded_calls, seconds_of, titled_splits
from rla.report.render import terminal_width
from rla.report.tables import LOOP, bounds, percent
from rla.rollouts.labels import LABELS
from rla.store.layout import UNTRAINED, artifact
from rla.store.manifest import read_json
from rla.store.records import StopReason
from rla.text import counted, duration
from rla_study.planning.before import foreseen
from rla_study.showing.drawing import draw
from rla_study.showing.episodes import Excerpt, Played, episode_frame, played_in, shown_episodes
from rla_study.timeline.timeline import timed_call

ENDS = 2  # steps shown from the beginning and from the end of an episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestones:
    """The messages of one call of `rla run`."""

    plan: Plan  # as requested
    run: Path
    config: Config
    say: Callable[[str], None]

    def begin(self) -> None:
        """Called before anything is loaded. A resumed run has printed this before."""
        if self.plan.overwrite or not self.run.exists():
            self.say(foreseen(self.config))

    def passed(self, stage: str, following: Sequence[str]) -> None:
        """Called after each stage. An error, such as a damaged record of times, is reported but does not stop the
        run.
        """
        try:
            self._tell(stage, following)
        except (UserError, OSError) as error:
            self.say(f"nothing to say after {stage or 'the report'}: {error}")

    def _tell(self, stage: str, following: Sequence[str]) -> None:
        name, _, number = stage.partition("@")
        if name == "evaluate-untrained":
            self.say("\n".join(_untrained_success(self.run, self.config)))
        if not stage:
            self.say("\n".join(_closing_lines(self.plan, self.run)))
        elif stage == "evaluate@0":
            self.say("\n".join(_first_success(self.run, self.config)))
        elif name in LOOP and number not in (iterations := _iterations_of(following)):
            evaluations = sum(one.startswith("evaluate@") for one in following)
            self.say(_time_left(self.run, int(number), len(iterations), evaluations))


def _iterations_of(stages: Sequence[str]) -> set[str]:
    """The iterations that stages of the loop belong to."""
    return {number for name, _, number in (one.partition("@") for one in stages) if name in LOOP}


def _untrained_success(run: Path, config: Config) -> Iterator[str]:
    """On the main held-out split, with excerpts."""
    folder = run / UNTRAINED
    row = read_json(folder / "metrics.json")
    yield _success_text(row, f"on {row['split']} untrained" if len(config.tasks.test_splits) > 1 else "untrained")
    nothing = folder / "rewards"  # an evaluation pays nobody
    played = Played(
        trajectories=folder / "trajectories",
        scores=folder / "scores",
        policy_rewards=nothing,
        rm_rewards=nothing,
        pools=(),
    )
    yield from _excerpts_text(played, config)


def _first_success(run: Path, config: Config) -> Iterator[str]:
    """Of iteration 0 on every held-out split, then excerpts of the main one."""
    trained = "after the warm start" if config.warm_start.enabled else "before training"
    for found in titled_splits(collect(run)):
        for row in found.evaluations[:1]:
            yield _success_text(row, f"on {found.split} {trained}" if found.split else trained)
    yield from _excerpts_text(played_in(run, config, 0, config.tasks.test_splits[0]), config)


def _excerpts_text(played: Played, config: Config) -> Iterator[str]:
    """A won and a lost episode, and a line if there is only one kind."""
    excerpts = _won_and_lost(played, config)
    stream = io.StringIO()
    draw(excerpts, stream, width=terminal_width())
    yield stream.getvalue().rstrip("\n")
    if len({one.episode.won for one in excerpts}) == 1:
        yield f"no episode was {'lost' if excerpts[0].episode.won else 'won'}"


def _success_text(row: Mapping[str, Any], of: str) -> str:
    """`held-out success untrained: 0.0% of 96 episodes, 95% interval 0.0-3.8%`."""
    return (
        f"held-out success {of}: {percent(row['success'])} of {counted(row['episodes'], 'episode')}, "
        f"95% interval {bounds(row)}"
    )


def _time_left(run: Path, iteration: int, iterations: int, evaluations: int) -> str:
    """`iteration 1 took 3 min 20 s; 2 left: about 7 min; so far 0.4 core hours`. The estimate assumes that later
    iterations take as long as this one, and evaluations as long as the evaluation of iteration 0.
    """
    seconds = seconds_of(run)
    spent = sum(seconds.get((iteration, stage), 0.0) for stage in LOOP)
    ahead = iterations * spent + evaluations * seconds.get((0, "evaluate"), 0.0)
    left = f"; {iterations} left: about {duration(ahead)}" if iterations else ""
    return f"iteration {iteration} took {duration(spent)}{left}; so far {cost(run)}"


def cost(run: Path) -> str:
    """`0.21 GPU hours` for the stages that used a GPU, or `0.42 core hours` over all cores if none did."""
    calls = [call for call in recorded_calls(run, timed_call) if not call.part]
    used = [(call, device) for call in calls for device in call.devices]
    if not used:
        return f"{usable_cores() * sum(call.seconds for call in calls) / 3600:.2g} core hours"
    seconds = (sum(end - start for start, end in one.spans) if one.spans else call.seconds for call, one in used)
    return f"{sum(seconds) / 3600:.2g} GPU hours"


def _won_and_lost(played: Played, config: Config) -> list[Excerpt]:
    """The first and last steps of the first won and the first lost episode, if there are any."""
    table = episode_frame(played).filter(pl.col("stop_reason") != StopReason.ENV_ERROR)
    ids = [*table.filter(outcome=1)["trajectory_id"][:1], *table.filter(outcome=-1)["trajectory_id"][:1]]
    whole = shown_episodes(played, ids, config, labels=pl.DataFrame(schema=LABELS))
    ends = {name: {step.index for step in (*one.steps[:ENDS], *one.steps[-ENDS:])} for name, one in whole.items()}
    return [Excerpt(episode=whole[name], steps=sorted(ends[name])) for name in ids]


def _closing_lines(plan: Plan, run: Path) -> Iterator[str]:
    folder = artifact(run, "policy", plan.iterations)
    checkpoint = open_checkpoint(folder)
    parts = parts_of(checkpoint.model)
    yield f"cost: {cost(run)}"
    if parts.adapter is None:
        yield f"policy: {folder / 'model'}"
        served = [str(folder / "model"), "--served-model-name", "policy"]
    else:
        yield f"policy: {checkpoint.adapter}, an adapter over {parts.base}"
        rank = parts.adapter.rank
        room = next((one for one in get_args(LoraRank) if one >= rank), rank)  # vLLM has no sizes in between
        served = [str(parts.base), "--enable-lora", "--max-lora-rank", str(room)]
        served += ["--lora-modules", f"policy={checkpoint.adapter}"]
    yield f"to serve it: {shlex.join(['vllm', 'serve', *served])}"
    yield f"to go on: {_next_call(plan)}"


def _next_call(plan: Plan) -> str:
    """The command that continues with as many iterations again."""
    words = ["rla", "run", "--iterations", str(2 * plan.iterations)]
    words += ["--evaluate-every", str(plan.evaluate_every)] if plan.evaluate_every else []
    words += ["--params", str(plan.params)] if plan.params != Plan(iterations=1).params else []
    words += ["--run", str(plan.run)] if plan.run else []
    words += ["--seed", str(plan.seed)] if plan.seed is not None else []
    words += [word for text in plan.overrides for word in ("--set", text)]
    return shlex.join(words)
