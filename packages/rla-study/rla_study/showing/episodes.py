"""Episodes of a run for people: every step with its votes, rewards and label, and the choices of `rla show`.

    worst      steps on which most votes contradict the label, the largest policy advantage first
    disputed   steps with split votes, the most evenly split first

Labels are of the environment's solver. Unreadable votes do not count. An iteration can be read while it is running:
votes, rewards and labels are absent until their shard is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import polars as pl

from rla.config import Config
from rla.envs.protocols import Labels, ToolPrompt
from rla.envs.registry import environment
from rla.errors import UserError
from rla.pictures.shard import images_of_part, named_images
from rla.report.tables import Table, number, percent
from rla.rollouts.labels import LABELS, labels_in
from rla.store.frames import read_judgements
from rla.store.layout import artifact, held_out_root, numbered_folders
from rla.store.manifest import is_complete
from rla.store.reading import listed_parts, part_rows, read_table, shard_parts, stream_rows


@runtime_checkable
class DrawsActions(Protocol):
    """A `PolicyPrompt` that can mark the place an action points at."""

    def drawn(self, action: str, png: bytes) -> bytes:
        """The last image before `action` with that place marked, or unchanged for other actions. `action` is model
        text. Raises UserError if the image is damaged.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One vote of the reward model. `score`: +1, -1, or None if the text is unreadable. `reward`: if it trains."""

    score: int | None
    text: str
    reward: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCall:
    """A tool call of a reply. `status`: how it ended. `fault`: why it could not be read."""

    name: str
    arguments: Mapping[str, Any]
    status: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStep:
    """`reward`, `advantage`: of the policy. `label`: +1 if the step helped, else -1. They are None if not computed.
    `images`: PNG files of the observation. `calls`: tool calls of the reply, with results in the next observation.
    """

    index: int
    observation: str
    reply: str
    action: str
    valid: bool
    votes: Sequence[Vote] = ()
    reward: float | None = None
    advantage: float | None = None
    label: int | None = None
    images: Sequence[bytes] = ()
    calls: Sequence[ShownCall] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEpisode:
    """One episode. `verdict`, `last_images`: the environment's last answer and its PNG files."""

    trajectory_id: str
    task_id: str
    slot: str
    kind: str
    status: str
    iteration: int
    rollout: int
    won: bool
    stop_reason: str
    instruction: str
    steps: Sequence[ShownStep]
    verdict: str
    last_images: Sequence[bytes] = ()
    error: str | None = None
    reward: float | None = None

    @property
    def ended(self) -> str:
        return "won" if self.won else f"lost ({self.stop_reason})"

    @property
    def title(self) -> str:
        """The episode and its end in one line."""
        return (
            f"episode {self.trajectory_id}: {self.ended} after {len(self.steps)} steps; task {self.task_id} "
            f"({self.kind}), rollout {self.rollout}, iteration {self.iteration}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Steps of an episode, and why they are shown. `steps`: indices; None: all of them."""

    episode: ShownEpisode
    steps: Sequence[int] | None = None
    why: str = ""

    @property
    def shown(self) -> list[ShownStep]:
        return [step for step in self.episode.steps if self.steps is None or step.index in self.steps]

    @property
    def to_the_end(self) -> bool:
        """Whether the last step is shown; an episode may have no steps."""
        last = self.shown[-1].index if self.shown else -1
        return last + 1 == len(self.episode.steps)


EPISODE = ("trajectory_id", "task_id", "slot", "kind", "status", "iteration", "rollout", "outcome", "stop_reason")
WHOLE = (*EPISODE, "instruction", "steps", "final_observation", "error", "reward", "images", "screens", "calls")
VOTES = ("trajectory_id", "step", *(f"judgements.list.element.{name}" for name in ("score", "text")))
PAID = ("trajectory_id", "step", "reward", "advantage")
POOLS = (("pool", "tasks"), ("candidates", "candidates"))  # artifacts with the tasks of an iteration, and their kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The folders of an iteration or evaluation. `pools`: (folder, kind) of the shards with its tasks."""

    trajectories: Path
    scores: Path
    policy_rewards: Path
    rm_rewards: Path
    pools: tuple[tuple[Path, str], ...]


def played_in(run: Path, config: Config, iteration: int, split: str | None = None, *, growing: bool = False) -> Played:
    """The folders of an iteration, or of an evaluation on a held-out split. Raises UserError unless its episodes are
    complete or, with `growing`, begun.
    """
    names = ("trajectories", "scores", "policy_rewards", "rm_rewards")
    if split is None:
        folders = {name: artifact(run, name, iteration) for name in names}
        pools = [(artifact(run, f"previous_{name}", iteration), kind) for name, kind in POOLS]
    else:
        root = held_out_root(run, config.tasks.test_splits, split)
        folders = {name: artifact(root, f"eval_{name}", iteration) for name in names[:2]}
        folders |= dict.fromkeys(names[2:], folders["scores"].with_name("rewards"))  # an evaluation has none
        pools = [(artifact(root, "test_tasks", 0), "tasks")]
    trajectories = folders["trajectories"]
    if not (is_complete(trajectories) or (growing and shard_parts(trajectories))):
        raise UserError(f"{trajectories}: no episodes of iteration {iteration}; see what lies below {run}")
    return Played(**folders, pools=tuple(pool for pool in pools if is_complete(pool[0])))


def episode_frame(played: Played) -> pl.DataFrame:
    """One row per episode, with the columns of EPISODE and `instruction`."""
    return pl.DataFrame(pl.from_arrow(read_table(played.trajectories, "trajectories", [*EPISODE, "instruction"])))


def shown_episodes(
    played: Played, wanted: Collection[str] | None, config: Config, *, labels: pl.DataFrame | None = None
) -> dict[str, ShownEpisode]:
    """trajectory_id -> episode, in the order of the shard. `wanted`: trajectory ids; None: all. `labels`: a frame of
    `rla.rollouts.labels`, if known. Episodes of an incomplete shard have no labels.
    """
    votes = _votes(played, wanted)
    paid: dict[tuple[str, int], tuple[float, float]] = {}  # reward and advantage of a step
    if is_complete(played.policy_rewards):
        rows = stream_rows(played.policy_rewards, "policy_rewards", PAID, keys=wanted)
        paid = {(row["trajectory_id"], row["step"]): (row["reward"], row["advantage"]) for row in rows}
    if labels is None and not is_complete(played.trajectories):
        labels = pl.DataFrame(schema=LABELS)
    elif labels is None:
        labels = labels_in(played.trajectories, played.pools, config, only=wanted).frame
    known = {(row["trajectory_id"], row["step"]): row["label"] for row in labels.iter_rows(named=True)}
    prompt = environment(config.env.name).policy_prompt(config)
    found = {}
    for place, row in _finished_rows(played.trajectories, wanted):
        steps = []
        pictures = _pictures(row, place)
        last = max(pictures, default=0)
        for index, step in enumerate(row["steps"]):
            key = row["trajectory_id"], index
            reward, advantage = paid.get(key, (None, None))
            pngs = pictures.get(index, ())
            if pngs and isinstance(prompt, DrawsActions):  # into the last picture
                pngs = [*pngs[:-1], prompt.drawn(step["action"], pngs[-1])]
            steps.append(
                ShownStep(
                    index=index,
                    **{name: step[name] for name in ("observation", "reply", "action", "valid")},
                    votes=votes.get(key, ()),
                    reward=reward,
                    advantage=advantage,
                    label=known.get(key),
                    images=pngs,
                    calls=_calls(prompt, step["action"], row, index) if isinstance(prompt, ToolPrompt) else (),
                )
            )
        found[row["trajectory_id"]] = ShownEpisode(
            **{name: row[name] for name in EPISODE if name != "outcome"},
            won=row["outcome"] > 0,
            instruction=row["instruction"],
            steps=steps,
            verdict=row["final_observation"],
            last_images=pictures.get(last, ()) if last >= len(steps) else (),
            error=row["error"],
            reward=row["reward"],
        )
    return found


def _finished_rows(trajectories: Path, wanted: Collection[str] | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """(part file, row) of the episodes of a shard; of a growing shard, of finished groups."""
    growing = not is_complete(trajectories)
    parts = dict.fromkeys(shard_parts(trajectories)) if growing else listed_parts(trajectories, "trajectories")
    for part, entry in parts.items():
        yield from ((part, row) for row in part_rows(part, WHOLE, keys=wanted, kind="trajectories", entry=entry))


def _votes(played: Played, wanted: Collection[str] | None) -> dict[tuple[str, int], list[Vote]]:
    """(trajectory_id, step) -> votes in order."""
    if not is_complete(played.scores):
        return {}
    rewards: dict[tuple[str, int, int], float] = {}
    if is_complete(played.rm_rewards):
        columns = ("trajectory_id", "step", "judgement", "reward")
        for row in stream_rows(played.rm_rewards, "rm_rewards", columns, keys=wanted):
            rewards[row["trajectory_id"], row["step"], row["judgement"]] = row["reward"]
    return {
        (row["trajectory_id"], row["step"]): [
            Vote(score=vote["score"], text=vote["text"], reward=rewards.get((row["trajectory_id"], row["step"], index)))
            for index, vote in enumerate(row["judgements"])
        ]
        for row in stream_rows(played.scores, "scores", VOTES, keys=wanted)
    }


def _calls(prompt: ToolPrompt, action: str, row: dict[str, Any], index: int) -> list[ShownCall]:
    """The tool calls of a step; empty if the environment failed before it answered."""
    ended = [str(call["status"]) for call in row["calls"] or () if call["step"] == index]
    return [
        ShownCall(name=name, arguments=arguments, status=status, fault=fault)
        for (name, arguments, fault), status in zip(prompt.calls_in(action), ended, strict=False)
    ]


def _pictures(row: dict[str, Any], part: Path) -> Mapping[int, Sequence[bytes]]:
    """Observation -> its PNG files in order."""
    if row["screens"] is not None:
        pngs = images_of_part(part, named_images(row))
        return {index: [pngs[digest] for digest in shown] for index, shown in enumerate(row["screens"])}
    placed: list[tuple[int, int, bytes]] = [
        (place["observation"], place["position"], image["png"])
        for image in row["images"] or ()
        for place in image["shown"]
    ]
    found: dict[int, list[bytes]] = {}
    for observation, _, png in sorted(placed):
        found.setdefault(observation, []).append(png)
    return found


def played_iterations(run: Path, config: Config, split: str | None = None, *, growing: bool = False) -> list[int]:
    """The iterations with complete episodes, in order. `split`: of evaluations on it. `growing`: also those begun."""
    root, name, numbered = run, "trajectories", run
    if split is not None:
        root, name = held_out_root(run, config.tasks.test_splits, split), "eval_trajectories"
        numbered = root / "eval"
    shards = {i: artifact(root, name, i) for i in numbered_folders(numbered)}
    return [i for i, shard in shards.items() if is_complete(shard) or (growing and shard_parts(shard))]


Choice = Literal["worst", "disputed"]
STEP = ("trajectory_id", "step")
AROUND = 1  # steps that are shown before a chosen one


def chosen_steps(
    votes: pl.DataFrame, *, labels: pl.DataFrame, paid: pl.DataFrame, choice: Choice, count: int
) -> list[tuple[str, int, str]]:
    """(trajectory_id, step, why) of at most `count` steps with a readable vote. Ties are in the order of episode and
    step.

    All frames have trajectory_id and step; `votes` has score (+1, -1, null), `labels` has label, `paid` has advantage.
    """
    table = (
        votes.drop_nulls("score")
        .group_by(*STEP)
        .agg(votes=pl.len(), mean=pl.col("score").cast(pl.Float64).mean())
        .join(labels.select(*STEP, "label"), on=STEP, how="left")
        .join(paid.select(*STEP, "advantage"), on=STEP, how="left")
    )
    if choice == "worst":
        wrong = (1 - pl.col("mean") * pl.col("label")) / 2  # share of the votes that contradict the label
        table, rank = table.filter(wrong > 0), -wrong  # without a label it is null, which is not above 0
    else:
        table, rank = table.filter(pl.col("mean").abs() < 1), pl.col("mean").abs()
    found = []
    for row in table.sort(rank, -pl.col("advantage").abs().fill_null(0.0), *STEP).head(count).iter_rows(named=True):
        good = round((1 + row["mean"]) / 2 * row["votes"])
        why = f"{good} of {row['votes']} votes call the step good"
        if choice == "worst":
            why += f", and it {'helped' if row['label'] > 0 else 'did not help'}"
        found.append((row["trajectory_id"], row["step"], why))
    return found


def chosen_excerpts(played: Played, config: Config, choice: Choice, count: int) -> list[Excerpt]:
    """The steps of a choice in its order, each after the step before it. Steps of one episode are one excerpt. Raises
    UserError without votes, or without labels for a choice that needs them.
    """
    if not is_complete(played.scores):
        raise UserError(f"{played.scores}: no votes to choose by; call `rla score-steps` first")
    labels = None
    if choice == "worst":
        if not isinstance(environment(config.env.name), Labels):
            raise UserError(
                f"--worst: the environment {config.env.name} does not say which steps helped; --disputed needs the "
                "votes alone"
            )
        labels = labels_in(played.trajectories, played.pools, config).frame
    paid = pl.DataFrame(schema={"trajectory_id": pl.String, "step": pl.Int32, "advantage": pl.Float64})
    if is_complete(played.policy_rewards):
        paid = pl.DataFrame(pl.from_arrow(read_table(played.policy_rewards, "policy_rewards", list(PAID))))
    known = pl.DataFrame(schema=LABELS) if labels is None else labels
    # Some judgements belong to no episode, such as those of reference programs.
    votes = read_judgements(played.scores).join(episode_frame(played), on="trajectory_id", how="semi")
    grouped: dict[str, dict[int, str]] = {}
    for name, step, why in chosen_steps(votes, labels=known, paid=paid, choice=choice, count=count):
        grouped.setdefault(name, {})[step] = why
    episodes = shown_episodes(played, grouped, config, labels=labels)
    return [
        Excerpt(
            episode=episodes[name],
            steps=sorted({near for step in steps for near in range(max(0, step - AROUND), step + 1)}),
            why="\n".join(f"step {step}: {why}" for step, why in sorted(steps.items())),
        )
        for name, steps in grouped.items()
    ]


def named_excerpts(played: Played, config: Config, column: str, beginning: str) -> list[Excerpt]:
    """One episode (`trajectory_id`), or all of a task (`task_id`), by a prefix of its id. Raises UserError unless
    exactly one id matches.
    """
    table = episode_frame(played)
    ids = sorted({name for name in table[column] if name.startswith(beginning)})
    if len(ids) != 1:
        found = f"{', '.join(ids[:4])} begin so" if ids else "there is none"
        raise UserError(f"{played.trajectories}: {column} {beginning}: {found}; `rla show` alone lists the tasks")
    rows = table.filter(pl.col(column) == ids[0]).sort("rollout", "trajectory_id")
    whole = shown_episodes(played, set(rows["trajectory_id"]), config)
    return [Excerpt(episode=whole[name]) for name in rows["trajectory_id"]]


def played_table(played: Played) -> Table:
    """One line per task: how many of its episodes were won, the mean vote, and its first episode."""
    votes = pl.DataFrame(schema={"task_id": pl.String, "mean": pl.Float64})
    if is_complete(played.scores):
        scored = read_judgements(played.scores).drop_nulls("score")
        votes = scored.group_by("task_id").agg(mean=pl.col("score").cast(pl.Float64).mean())
    tasks = (
        episode_frame(played)
        .sort("rollout", "trajectory_id")
        .group_by("task_id", maintain_order=True)
        .agg(
            pl.col("kind", "status").first(),
            won=(pl.col("outcome") > 0).mean(),
            episodes=pl.len(),
            instruction=pl.col("instruction").first(),
            first=pl.col("trajectory_id").first(),
        )
        .join(votes, on="task_id", how="left")
        .sort("kind", "task_id")
    )
    columns = ("task", "kind", "status", "won, %", "episodes", "mean vote", "instruction", "first episode")
    rows = []
    for task, kind, status, won, episodes, instruction, first, mean in tasks.iter_rows():
        said = instruction.splitlines()[0] if instruction else ""
        rows.append((task, kind, status, percent(won), str(episodes), number(mean, 2), said, first))
    note = "--task ID or --episode ID shows all steps; --worst and --disputed choose some"
    return Table(title="Tasks that were played", columns=columns, rows=tuple(rows), note=note)
