"""Episodes of a run as they are shown: every step with its votes, rewards and label, read from the run's shards.

Votes, rewards and labels are absent while their shard is: an iteration can be read while it is still running.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from rla.config import Config
from rla.envs.prompts import ReadsCalls
from rla.envs.registry import environment
from rla.errors import UserError
from rla.pictures.prompts import DrawsActions
from rla.pictures.shard import images_of_part, named_images
from rla.rollouts.labels import LABELS, labels_in
from rla.store.layout import artifact, held_out_root, numbered_folders
from rla.store.reading import part_rows, read_table, shard_parts, stream_placed_rows, stream_rows
from rla.store.record import is_complete


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One vote of the reward model: +1, -1, or None if its `text` could not be read. `reward`: the vote's own, if the
    reward model trains on it.
    """

    score: int | None
    text: str
    reward: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCall:
    """A call of a tool, as a reply asked for it. `status`: how it ended. `fault`: why it could not be read."""

    name: str
    arguments: Mapping[str, Any]
    status: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStep:
    """`reward`, `advantage`: of the policy. `label`: +1 if the step helped, else -1, by the environment's own solver.
    Each is None if it was not computed. `images`: PNG files of the observation. `calls`: made by the reply; the next
    observation holds their results.
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
    """One episode of an iteration, or of an evaluation. `verdict`: the environment's last answer, and `last_images` the
    PNG files that came with it.
    """

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
        """One line: which episode it is and how it ended."""
        return (
            f"episode {self.trajectory_id}: {self.ended} after {len(self.steps)} steps; task {self.task_id} "
            f"({self.kind}), rollout {self.rollout}, iteration {self.iteration}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Some steps of an episode, and why they are shown. `steps`: indices; None: all of them."""

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
    """The folders of an iteration's or an evaluation's episodes, scores and rewards. `pools`: (folder, kind) of the
    shards with their tasks.
    """

    trajectories: Path
    scores: Path
    policy_rewards: Path
    rm_rewards: Path
    pools: tuple[tuple[Path, str], ...]


def played_in(run: Path, iteration: int, *, growing: bool = False) -> Played:
    """The episodes of an iteration. Raises UserError unless it was played, or, with `growing`, at least begun."""
    pools = [(artifact(run, "previous_pool", iteration), "tasks")]
    pools += [(artifact(run, "previous_candidates", iteration), "candidates")]
    found = Played(
        trajectories=artifact(run, "trajectories", iteration),
        scores=artifact(run, "scores", iteration),
        policy_rewards=artifact(run, "policy_rewards", iteration),
        rm_rewards=artifact(run, "rm_rewards", iteration),
        pools=_complete(pools),
    )
    return _there(run, found, iteration, growing=growing)


def evaluated_in(run: Path, config: Config, iteration: int, split: str, *, growing: bool = False) -> Played:
    """The episodes of an evaluation on a held-out split. Raises UserError as `played_in` does."""
    root = _root_of(run, config, split)
    folder = artifact(root, "eval_trajectories", iteration)
    nothing = folder.with_name("rewards")  # an evaluation pays nobody
    pools = _complete([(artifact(root, "test_tasks", 0), "tasks")])
    scores = artifact(root, "eval_scores", iteration)
    found = Played(trajectories=folder, scores=scores, policy_rewards=nothing, rm_rewards=nothing, pools=pools)
    return _there(run, found, iteration, growing=growing)


def _root_of(run: Path, config: Config, split: str) -> Path:
    splits = config.tasks.test_splits
    if split not in splits:
        raise UserError(f"--split {split}: not a held-out split of this run; choose one of {', '.join(splits)}")
    return held_out_root(run, splits, split)


def _complete(pools: Sequence[tuple[Path, str]]) -> tuple[tuple[Path, str], ...]:
    return tuple((folder, kind) for folder, kind in pools if is_complete(folder))


def _there(run: Path, played: Played, iteration: int, *, growing: bool) -> Played:
    if not (is_complete(played.trajectories) or (growing and shard_parts(played.trajectories))):
        raise UserError(f"{played.trajectories}: no episodes of iteration {iteration}; see what lies below {run}")
    return played


def episode_frame(played: Played) -> pl.DataFrame:
    """One row an episode, columns of EPISODE and `instruction`."""
    return pl.DataFrame(pl.from_arrow(read_table(played.trajectories, "trajectories", [*EPISODE, "instruction"])))


def read_episodes_whole(
    played: Played, wanted: Collection[str] | None, config: Config, *, labels: pl.DataFrame | None = None
) -> dict[str, ShownEpisode]:
    """The episodes `wanted` by trajectory_id (None: all), in the order of the shard.

    `labels`: from `rla.rollouts.labels`, if they are known already. Episodes of an incomplete shard have no labels.
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
                    calls=_calls(prompt, step["action"], row, index) if isinstance(prompt, ReadsCalls) else (),
                )
            )
        found[row["trajectory_id"]] = ShownEpisode(
            **{name: row[name] for name in EPISODE if name != "outcome"},
            won=row["outcome"] > 0,
            instruction=row["instruction"],
            steps=steps,
            verdict=row["final_observation"],
            last_images=_last_pictures(pictures, len(steps)),
            error=row["error"],
            reward=row["reward"],
        )
    return found


def _finished_rows(trajectories: Path, wanted: Collection[str] | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The episodes of a shard, each with its part; from a growing shard, those of finished groups."""
    if not is_complete(trajectories):
        for part in shard_parts(trajectories):
            yield from ((part, row) for row in part_rows(part, WHOLE, keys=wanted, kind="trajectories"))
        return
    yield from stream_placed_rows(trajectories, "trajectories", WHOLE, keys=wanted)


def _votes(played: Played, wanted: Collection[str] | None) -> dict[tuple[str, int], list[Vote]]:
    """(trajectory_id, step) -> its votes, in order."""
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
    if not is_complete(played.policy_rewards):
        return {}
    rows = stream_rows(played.policy_rewards, "policy_rewards", PAID, keys=wanted)
    return {(row["trajectory_id"], row["step"]): (row["reward"], row["advantage"]) for row in rows}


def _calls(prompt: ReadsCalls, action: str, row: dict[str, Any], index: int) -> list[ShownCall]:
    """The calls of a step with their status; empty if the environment failed before it answered them."""
    ended = [str(call["status"]) for call in row["calls"] or () if call["step"] == index]
    return [
        ShownCall(name=name, arguments=arguments, status=status, fault=fault)
        for (name, arguments, fault), status in zip(prompt.calls_in(action), ended, strict=False)
    ]


def _pointed(prompt: Any, action: str, pngs: Sequence[bytes]) -> Sequence[bytes]:
    """The pictures of an observation, with the place that the action points at drawn into the last one."""
    return [*pngs[:-1], prompt.drawn(action, pngs[-1])] if pngs and isinstance(prompt, DrawsActions) else pngs


def _last_pictures(pictures: Mapping[int, Sequence[bytes]], steps: int) -> Sequence[bytes]:
    """The pictures that followed the last of `steps`."""
    last = max(pictures, default=0)
    return pictures.get(last, ()) if last >= steps else ()


def _pictures(row: dict[str, Any], part: Path) -> Mapping[int, Sequence[bytes]]:
    """Observation -> the PNG files that it showed, in their order."""
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
    """The iterations that were played (with `split`: evaluated on it), in order; `growing`: or begun."""
    root, name = (run, "trajectories") if split is None else (_root_of(run, config, split), "eval_trajectories")
    shards = {i: artifact(root, name, i) for i in numbered_folders(root if split is None else root / "eval")}
    return [i for i, shard in shards.items() if is_complete(shard) or (growing and shard_parts(shard))]
