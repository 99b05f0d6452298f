"""The place of a step: what the environment says of the state, or else what was observed; what shaping measures."""

from __future__ import annotations

from pathlib import Path

from rla.store.frames import read_episodes
from rla.store.records import Trajectory
from rla.store.shards import Origin, ShardWriter
from tests.unit.builders import step, trajectory


def shard(folder: Path, *played: Trajectory) -> Path:
    """A shard with a part for each episode."""
    writer = ShardWriter(folder, "trajectories", Origin(config="c", inputs={}, seed=0))
    for index, one in enumerate(played):
        writer.write(index, [one.row()])
    writer.finish()
    return folder


def places(folder: Path, *played: Trajectory) -> dict[tuple[str, int], str]:
    """(trajectory, step) -> place."""
    _, steps = read_episodes(shard(folder, *played))
    return {(row["trajectory_id"], row["step"]): row["place"] for row in steps.iter_rows(named=True)}


def seen(*observations: str) -> list[object]:
    return [step(observation=text) for text in observations]


def test_without_places_steps_are_in_the_same_place_where_they_read_alike(tmp_path: Path) -> None:
    found = places(tmp_path, trajectory("a", steps=seen("door", "Nothing happens.", "door")))
    assert found == {("a", 0): "door", ("a", 1): "Nothing happens.", ("a", 2): "door"}


def test_what_reads_alike_in_two_places_is_told_apart(tmp_path: Path) -> None:
    """Beside an episode of an older part without any, and a state that the environment does not name."""
    found = places(
        tmp_path,
        trajectory("a", steps=seen("arrived", "Nothing happens."), places=["empty hands", "carrying"]),
        trajectory("b", steps=seen("Nothing happens.", "wall"), places=["empty hands", None]),
        trajectory("c", steps=seen("arrived", "wall")),
        trajectory("d", steps=[], outcome=-1),
    )
    assert found == {
        **{("a", 0): "empty hands", ("a", 1): "carrying", ("b", 0): "empty hands"},
        **{("b", 1): "wall", ("c", 0): "arrived", ("c", 1): "wall"},
    }


def test_what_shaping_reads_of_an_episode(tmp_path: Path) -> None:
    """b: one dialogue with a result of 3 tokens between two replies, two calls in the first, and a reward; c: a prompt
    for every step; d: nothing was played.
    """
    calls = [{"step": 0, "status": "ok"}, {"step": 0, "status": "timeout"}, {"step": 2, "status": "ok"}]
    calls += [{"step": 3, "status": "malformed"}, {"step": 4, "status": "absent"}]  # which earn no bonus
    dialogue = [step(start=4, end=9), step(start=12, end=14)]
    windows = [step(start=4, end=9), step(segment=1, start=12, end=14), step(segment=2, start=1, end=2)]
    folder = shard(
        tmp_path,
        trajectory("a"),
        trajectory("b", steps=dialogue, calls=calls, reward=0.25),
        trajectory("c", steps=windows, calls=[]),
        trajectory("d", steps=[], outcome=-1),
    )
    episodes, _ = read_episodes(folder, measured=True)
    found = episodes.sort("trajectory_id").select("reward", "tool_rounds", "response_tokens").rows()
    assert found == [(None, 0, 2), (0.25, 2, 10), (None, 0, 8), (None, 0, 0)]
    assert "tool_rounds" not in read_episodes(folder)[0].columns
