"""Episodes of a run for people: every step with its votes, rewards and label, and the choices of `rla show`.

    worst      steps on which most votes contradict the label, the largest policy advantage first
    best       steps on which every vote agrees with the label, in the same order
    disputed   steps with split votes, the most evenly split first
    flipped    tasks that were won and are lost later

Labels are of the environment's solver. Unreadable votes do not count. An iteration can be read while it is running:
votes, rewards and labels are absent until their shard is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl

from rla.config import Config
from rla.envs.protocols import Labels, ToolPrompt
from rla.envs.registry import environment
from rla.errors import UserError
from rla.pictures.prompts import DrawsActions
from rla.pictures.shard import images_of_part, named_images
from rla.rollouts.labels import LABELS, labels_in
from rla.store.frames import read_judgements
from rla.store.layout import artifact, held_out_root, numbered_folders
from rla.store.reading import part_rows, read_table, shard_parts, stream_placed_rows, stream_rows
from rla.store.record import is_complete


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The folders of an iteration or evaluation. `pools`: (folder, kind) of the shards with its tasks."""

    trajectories: Path
    scores: Path
    policy_rewards: Path
    rm_rewards: Path
    pools: tuple[tuple[Path, str], ...]


def played_in(run: Path, iteration: int, *, growing: bool = False) -> Played:
    """The folders of an iteration. Raises UserError unless its episodes are complete or, with `growing`, begun."""
    found = Played(
        trajectories=artifact(run, "trajectories", iteration),
        scores=artifact(run, "scores", iteration),
        policy_rewards=artifact(run, "policy_rewards", iteration),
        rm_rewards=artifact(run, "rm_rewards", iteration),
        pools=(
            (artifact(run, "previous_pool", iteration), "tasks"),
            (artifact(run, "previous_candidates", iteration), "candidates"),
        ),
    )
    return _checked(found, run, iteration, growing=growing)


def evaluated_in(run: Path, config: Config, iteration: int, split: str, *, growing: bool = False) -> Played:
    """The folders of an evaluation on a held-out split. Raises UserError as `played_in` does."""
    root = _root_of(run, config, split)
    folder = artifact(root, "eval_trajectories", iteration)
    absent = folder.with_name("rewards")  # an evaluation has no rewards
    found = Played(
        trajectories=folder,
        scores=artifact(root, "eval_scores", iteration),
        policy_rewards=absent,
        rm_rewards=absent,
        pools=((artifact(root, "test_tasks", 0), "tasks"),),
    )
    return _checked(found, run, iteration, growing=growing)


def episodes_at(run: Path, config: Config, iteration: int, split: str | None) -> Played:
    """`played_in`, or `evaluated_in` if a split is named."""
    return played_in(run, iteration) if split is None else evaluated_in(run, config, iteration, split)


def _root_of(run: Path, config: Config, split: str) -> Path:
    splits = config.tasks.test_splits
    if split not in splits:
        raise UserError(f"--split {split}: not a held-out split of this run; choose one of {', '.join(splits)}")
    return held_out_root(run, splits, split)


def _checked(played: Played, run: Path, iteration: int, *, growing: bool) -> Played:
    if not (is_complete(played.trajectories) or (growing and shard_parts(played.trajectories))):
        raise UserError(f"{played.trajectories}: no episodes of iteration {iteration}; see what lies below {run}")
    return replace(played, pools=tuple(pool for pool in played.pools if is_complete(pool[0])))


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
    paid = _paid(played, wanted)
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
            steps.append(
                ShownStep(
                    index=index,
                    **{name: step[name] for name in ("observation", "reply", "action", "valid")},
                    votes=votes.get(key, ()),
                    reward=reward,
                    advantage=advantage,
                    label=known.get(key),
                    images=_pointed(prompt, step["action"], pictures.get(index, ())),
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
    if not is_complete(trajectories):
        for part in shard_parts(trajectories):
            yield from ((part, row) for row in part_rows(part, WHOLE, keys=wanted, kind="trajectories"))
        return
    yield from stream_placed_rows(trajectories, "trajectories", WHOLE, keys=wanted)


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


def _paid(played: Played, wanted: Collection[str] | None) -> dict[tuple[str, int], tuple[float, float]]:
    """(trajectory_id, step) -> reward and advantage of the policy."""
    if not is_complete(played.policy_rewards):
        return {}
    rows = stream_rows(played.policy_rewards, "policy_rewards", PAID, keys=wanted)
    return {(row["trajectory_id"], row["step"]): (row["reward"], row["advantage"]) for row in rows}


def _calls(prompt: ToolPrompt, action: str, row: dict[str, Any], index: int) -> list[ShownCall]:
    """The tool calls of a step; empty if the environment failed before it answered."""
    ended = [str(call["status"]) for call in row["calls"] or () if call["step"] == index]
    return [
        ShownCall(name=name, arguments=arguments, status=status, fault=fault)
        for (name, arguments, fault), status in zip(prompt.calls_in(action), ended, strict=False)
    ]


def _pointed(prompt: Any, action: str, pngs: Sequence[bytes]) -> Sequence[bytes]:
    """The pictures of an observation; the place that the action points at is drawn into the last one."""
    return [*pngs[:-1], prompt.drawn(action, pngs[-1])] if pngs and isinstance(prompt, DrawsActions) else pngs


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
    root, name = (run, "trajectories") if split is None else (_root_of(run, config, split), "eval_trajectories")
    shards = {i: artifact(root, name, i) for i in numbered_folders(root if split is None else root / "eval")}
    return [i for i, shard in shards.items() if is_complete(shard) or (growing and shard_parts(shard))]


Choice = Literal["worst", "best", "disputed"]
STEP = ("trajectory_id", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A step, and why it is shown."""

    trajectory_id: str
    step: int
    why: str


def step_table(votes: pl.DataFrame, *, labels: pl.DataFrame, paid: pl.DataFrame) -> pl.DataFrame:
    """One row per step with a readable vote: trajectory_id, step, votes (their number), mean, label, advantage.

    All arguments have trajectory_id and step; `votes` has score (+1, -1, null), `labels` has label, `paid` has
    advantage. Unknown values are null.
    """
    return (
        votes.drop_nulls("score")
        .group_by(*STEP)
        .agg(votes=pl.len(), mean=pl.col("score").cast(pl.Float64).mean())
        .join(labels.select(*STEP, "label"), on=STEP, how="left")
        .join(paid.select(*STEP, "advantage"), on=STEP, how="left")
    )


def choose_steps(table: pl.DataFrame, choice: Choice, count: int) -> list[Chosen]:
    """At most `count` steps of a `step_table`. Ties are in the order of episode and step."""
    weight = pl.col("advantage").abs().fill_null(0.0)
    wrong = (1 - pl.col("mean") * pl.col("label")) / 2  # share of the votes that contradict the label
    match choice:
        case "worst":
            known = table.drop_nulls("label").with_columns(rank=wrong).filter(pl.col("rank") > 0)
            best = known.sort(-pl.col("rank"), -weight, *STEP)
        case "best":
            known = table.drop_nulls("label").with_columns(rank=wrong).filter(pl.col("rank") == 0)
            best = known.sort(-pl.col("votes").cast(pl.Int64), -weight, *STEP)
        case "disputed":
            split = table.filter(pl.col("mean").abs() < 1)
            best = split.sort(pl.col("mean").abs(), -weight, *STEP)
    found = []
    for row in best.head(count).iter_rows(named=True):
        good = round((1 + row["mean"]) / 2 * row["votes"])
        why = f"{good} of {row['votes']} votes call the step good"
        if choice != "disputed":
            why += f", and it {'helped' if row['label'] > 0 else 'did not help'}"
        found.append(Chosen(trajectory_id=row["trajectory_id"], step=row["step"], why=why))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Flipped:
    """A task that is won less often. `before`, `after`: shares of won episodes. `won`: a trajectory id of before,
    `lost`: one of after.
    """

    task_id: str
    before: float
    after: float
    won: str
    lost: str


def flipped_tasks(before: pl.DataFrame, after: pl.DataFrame) -> list[Flipped]:
    """Tasks of both frames that are won less often after. Columns: trajectory_id, task_id, rollout, outcome."""
    sides = []
    for frame, sign, name in ((before, 1, "won"), (after, -1, "lost")):
        example = pl.col("trajectory_id").filter(pl.col("outcome") == sign).first()
        share = (pl.col("outcome") > 0).mean()
        ordered = frame.sort("rollout", "trajectory_id").group_by("task_id")
        sides.append(ordered.agg(share.alias(f"{name}_share"), example.alias(name)))
    both = sides[0].join(sides[1], on="task_id").drop_nulls()
    return [
        Flipped(
            task_id=row["task_id"], before=row["won_share"], after=row["lost_share"], won=row["won"], lost=row["lost"]
        )
        for row in both.filter(pl.col("won_share") > pl.col("lost_share")).iter_rows(named=True)
    ]


AROUND = 1  # steps that are shown before a chosen one


def chosen_excerpts(played: Played, config: Config, choice: Choice, count: int) -> list[Excerpt]:
    """The steps of a choice in its order, each after the step before it. Steps of one episode are one excerpt. Raises
    UserError without votes, or without labels for a choice that needs them.
    """
    if not is_complete(played.scores):
        raise UserError(f"{played.scores}: no votes to choose by; call `rla score-steps` first")
    labels = None
    if choice != "disputed":
        if not isinstance(environment(config.env.name), Labels):
            raise UserError(
                f"--{choice}: the environment {config.env.name} does not say which steps helped; --disputed needs the "
                "votes alone"
            )
        labels = labels_in(played.trajectories, played.pools, config).frame
    paid = pl.DataFrame(schema={"trajectory_id": pl.String, "step": pl.Int32, "advantage": pl.Float64})
    if is_complete(played.policy_rewards):
        paid = pl.DataFrame(pl.from_arrow(read_table(played.policy_rewards, "policy_rewards", list(PAID))))
    known = pl.DataFrame(schema=LABELS) if labels is None else labels
    # Some judgements belong to no episode, such as those of reference programs.
    votes = read_judgements(played.scores).join(episode_frame(played), on="trajectory_id", how="semi")
    grouped: dict[str, list[Chosen]] = {}
    for one in choose_steps(step_table(votes, labels=known, paid=paid), choice, count):
        grouped.setdefault(one.trajectory_id, []).append(one)
    episodes = shown_episodes(played, grouped, config, labels=labels)
    return [
        Excerpt(
            episode=episodes[name],
            steps=sorted({step for one in steps for step in range(max(0, one.step - AROUND), one.step + 1)}),
            why="\n".join(f"step {one.step}: {one.why}" for one in sorted(steps, key=lambda one: one.step)),
        )
        for name, steps in grouped.items()
    ]


def asked_excerpts(
    run: Path, config: Config, iteration: int, split: str | None, choice: str, value: Any
) -> list[Excerpt]:
    """The excerpts of an option of `rla show`: `task` and `episode` with a prefix of an id, the others with a number.
    `split`: of an evaluation. Raises UserError if there is nothing to choose from.
    """
    played = episodes_at(run, config, iteration, split)
    match choice:
        case "task" | "episode":
            return _named(played, config, "task_id" if choice == "task" else "trajectory_id", value)
        case "worst" | "best" | "disputed":
            return chosen_excerpts(played, config, choice, value)
    later = [number for number in played_iterations(run, config, split) if number > iteration]
    if not later:
        raise UserError(f"--flipped: nothing was played after iteration {iteration}; give an earlier --iteration")
    return _flipped(played, (episodes_at(run, config, number, split) for number in later), config, value)


def _flipped(before: Played, later: Iterable[Played], config: Config, count: int) -> list[Excerpt]:
    """Two episodes of each task that was won less often when it was played again: a win, then a loss. `later`: the
    iterations after `before`, in order.
    """
    first = episode_frame(before)
    missing = set(first["task_id"])
    found: list[tuple[Flipped, Played]] = []
    for after in later:
        if not missing:
            break
        played = episode_frame(after).filter(pl.col("task_id").is_in(missing))
        missing -= set(played["task_id"])
        found += [(one, after) for one in flipped_tasks(first, played)]
    worst = sorted(found, key=lambda pair: (pair[0].after - pair[0].before, pair[0].task_id))[:count]
    won = shown_episodes(before, {one.won for one, _ in worst}, config)
    lost: dict[str, ShownEpisode] = {}
    for after in dict.fromkeys(after for _, after in worst):
        lost |= shown_episodes(after, {one.lost for one, place in worst if place == after}, config)
    excerpts = []
    for one, _ in worst:
        sides = won[one.won], lost[one.lost]
        said = (
            f"task {one.task_id}: {one.before:.0%} of its episodes won in iteration {sides[0].iteration}, "
            f"{one.after:.0%} in {sides[1].iteration}"
        )
        excerpts += [Excerpt(episode=episode, why=said) for episode in sides]
    return excerpts


def _named(played: Played, config: Config, column: str, beginning: str) -> list[Excerpt]:
    """One episode, or all of a task, by a prefix of its id. Raises UserError unless exactly one id matches."""
    table = episode_frame(played)
    ids = sorted({name for name in table[column] if name.startswith(beginning)})
    if len(ids) != 1:
        found = f"{', '.join(ids[:4])} begin so" if ids else "there is none"
        raise UserError(f"{played.trajectories}: {column} {beginning}: {found}; `rla show` alone lists the tasks")
    rows = table.filter(pl.col(column) == ids[0]).sort("rollout", "trajectory_id")
    whole = shown_episodes(played, set(rows["trajectory_id"]), config)
    return [Excerpt(episode=whole[name]) for name in rows["trajectory_id"]]
