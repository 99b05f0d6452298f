"""What was made from an input that has been replaced since is not read as if it belonged to it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from rla.errors import UserError
from rla.pipeline.origins import refuse_apart, refuse_foreign, refuse_stale
from rla.store.layout import artifact, made_together
from rla.store.manifest import MANIFEST, STARTED, digest, is_complete, optional_json
from rla.store.shards import Origin, Output, ShardWriter, is_finished, write_shard, write_shards
from tests.unit.builders import score, task, trajectory

OLD, NEW = (Origin(config=name, inputs={"0": "same"}, seed=0) for name in ("old", "new"))
TOGETHER = ("verdicts", "standings", "pool")


def shards(folder: Path, *, seed: int) -> tuple[Path, Path]:
    """Trajectories of that seed, and scores of those that lie there now."""
    played = folder / "trajectories"
    write_shard(played, "trajectories", [trajectory(seed=seed).row()], Origin(config="c", inputs={}, seed=seed))
    made_from = Origin(config="c", inputs={"0": digest(played)}, seed=0)
    write_shard(folder / "scores", "scores", [score().row()], made_from)
    return played, folder / "scores"


def test_a_shard_made_from_what_has_been_replaced_is_refused(tmp_path: Path) -> None:
    played, scores = shards(tmp_path, seed=1)
    refuse_stale(scores, source=played)
    other = Origin(config="c", inputs={}, seed=2)
    write_shard(played, "trajectories", [trajectory(seed=2).row()], other, overwrite=True)
    with pytest.raises(UserError, match=r"scores: not made from .*trajectories as it is now; call the stage"):
        refuse_stale(scores, source=played)


def test_a_shard_that_names_no_inputs_is_somebodys_own(tmp_path: Path) -> None:
    played, _ = shards(tmp_path, seed=1)
    write_shard(tmp_path / "own", "scores", [score().row()], Origin(config="", inputs={}, seed=0))
    refuse_stale(tmp_path / "own", source=played)


@pytest.mark.parametrize("kind", ["tasks", "candidates"])
def test_tasks_of_another_environment_are_refused(kind: str, tmp_path: Path) -> None:
    strange = task("t2", env="guess-number").row()
    more = {"valid": True, "reason": "", "parent_accuracy": 0.5, "critique": "none"} if kind == "candidates" else {}
    rows = [{**row, **more} for row in (task("t1").row(), strange)]
    write_shard(tmp_path / "made", kind, rows, Origin(config="c", inputs={}, seed=0))
    with pytest.raises(UserError, match=rf'made: its {kind} are of the environment "guess-number", .* give --env'):
        refuse_foreign(tmp_path / "made", "alfworld")


def test_episodes_of_another_environment_are_refused(tmp_path: Path) -> None:
    played_in = Origin(config="c", inputs={}, seed=0, parameters={"env": {"name": "coding"}})
    write_shard(tmp_path / "trajectories", "trajectories", [trajectory().row()], played_in)
    refuse_foreign(tmp_path / "trajectories", "coding")
    with pytest.raises(UserError, match=r"its trajectories are of the environment coding, and env.name is alfworld"):
        refuse_foreign(tmp_path / "trajectories", "alfworld")


def test_what_says_no_environment_is_read(tmp_path: Path) -> None:
    played, _ = shards(tmp_path, seed=1)
    for place in (played, tmp_path / "none", tmp_path):
        refuse_foreign(place, "alfworld")


def written(run: Path, origin: Origin, **options: bool) -> None:
    """Shards of the three places, as far as a call comes that writes them together."""
    rows = [task(origin.config).row()]
    outputs = [Output(folder=artifact(run, name, 2), kind="tasks", rows=rows) for name in TOGETHER]
    write_shards(outputs, origin, **options)


def test_which_shards_one_call_makes(tmp_path: Path) -> None:
    assert made_together(tmp_path, tmp_path / "2/rewards/rm") == [tmp_path / "2/rewards/policy"]
    assert made_together(tmp_path, tmp_path / "2/pool") == [tmp_path / "2/verdicts", tmp_path / "2/standings"]
    for alone in (tmp_path / "2/scores", tmp_path / "init/rm", Path("/elsewhere/2/pool")):
        assert made_together(tmp_path, alone) == []


@pytest.mark.parametrize("killed", range(0, 21, 2))
def test_after_a_kill_no_shard_is_read_beside_one_of_another_origin(
    killed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At files that go or get their names while three shards are replaced, and after a call without --overwrite."""
    written(tmp_path, OLD)
    left = [killed]

    def until_killed(name: str) -> None:
        real = getattr(Path, name)

        def counted(path: Path, *arguments: object, **more: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return real(path, *arguments, **more)

        monkeypatch.setattr(Path, name, counted)

    for name in ("replace", "unlink"):
        until_killed(name)
    with suppress(KeyboardInterrupt):
        written(tmp_path, NEW, overwrite=True)
    monkeypatch.undo()
    alike_or_refused(tmp_path)
    with suppress(UserError):
        written(tmp_path, NEW)
    alike_or_refused(tmp_path)
    written(tmp_path, NEW, overwrite=True)
    assert alike_or_refused(tmp_path) == {"new"}


def alike_or_refused(run: Path) -> set[str]:
    """The origins of the whole shards that can be read; each is refused where one beside it has another."""
    places = [artifact(run, name, 2) for name in TOGETHER]
    records = {place: optional_json(place / MANIFEST) or optional_json(place / STARTED) or {} for place in places}
    mixed = len({record["config_digest"] for record in records.values()}) > 1
    read = set()
    for place in places:
        if is_complete(place):
            try:
                refuse_apart(run, place)
                read.add(records[place]["config_digest"])
            except UserError as error:
                assert mixed and "belongs to it, and was made or begun with other parameters" in str(error)
    assert not (mixed and read)
    return read


def test_the_record_of_the_start_that_a_kill_has_left_does_not_hold_up_a_complete_pool(tmp_path: Path) -> None:
    for name, origin in (("pool", NEW), ("other", OLD)):
        ShardWriter(tmp_path / name, "tasks", origin).begin()
        start = (tmp_path / name / STARTED).read_bytes()
        assert not is_finished(tmp_path / name)
        write_shard(tmp_path / name, "tasks", [task("t1").row()], origin)
        (tmp_path / "pool" / STARTED).write_bytes(start)
        assert is_finished(tmp_path / "pool") == (name == "pool")  # the other call has begun to replace it
