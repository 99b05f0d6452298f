"""The place of a step: what the environment says of the state, or else what was observed."""

from __future__ import annotations

from pathlib import Path

from rla.store.frames import read_episodes
from rla.store.records import Trajectory
from rla.store.shards import Origin, ShardWriter
from tests.unit.builders import step, trajectory


def places(folder: Path, *played: Trajectory) -> dict[tuple[str, int], str]:
    """(trajectory, step) -> place, of a shard with a part for each episode."""
    writer = ShardWriter(folder, "trajectories", Origin(config="c", inputs={}, seed=0))
    for index, one in enumerate(played):
        writer.write(index, [one.row()])
    writer.finish()
    _, steps = read_episodes(folder)
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
