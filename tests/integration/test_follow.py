"""`score-steps --follow`: the same shard as of a plain call, whatever happens while the trajectories are played."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rla.rollouts.following import POLL
from rla.store.reading import read_manifest, read_part
from rla.store.shards import Origin, ShardWriter
from rla.store.slices import MANIFEST
from tests.integration.conftest import Rla
from tests.integration.pipelines import PARAMS, contents, environment, run, until

PLAYED, SCORES, AHEAD = Path("r/1/trajectories"), Path("r/1/scores"), Path("r/1/.scores.ahead")
FOLLOW = ("score-steps", "--run", "r", "--follow", "--follow-timeout", "60")
Rows = list[dict[str, Any]]


class Rollout:
    """Writes the trajectories of the shard `played` once more, as a rollout does, when it is told to."""

    def __init__(self, played: Path, folder: Path = PLAYED, *, config: str = "") -> None:
        self.manifest = read_manifest(played, "trajectories")
        made_from = Origin(
            config=config or self.manifest["config_digest"],
            inputs=self.manifest["input_digests"],
            seed=self.manifest["seed"],
            parameters=self.manifest["parameters"],
        )
        self.writer = ShardWriter(folder, "trajectories", made_from, overwrite=bool(config))
        self.groups: list[Rows] = [read_part(played / part["name"]).to_pylist() for part in self.manifest["parts"]]

    def play(self, *groups: int) -> None:
        for group in groups:
            self.writer.write(group, self.groups[group])

    def finish(self) -> None:
        self.writer.finish(self.manifest["counts"], tokenizer=self.manifest["tokenizer"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with trajectories of four tasks, and their scores in `calm`."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "params.yaml").write_text(PARAMS)
    run(["rla", "rollout", "--run", "r"], folder)
    run(["rla", "score-steps", "--run", "r", "--out", "calm"], folder)
    return folder


@pytest.fixture
def rollout(made: Path, tmp_path: Path, rla: Rla) -> Rollout:
    """The same run without trajectories, in the folder of the test; they are to be played again."""
    for name in ("r", "calm"):
        shutil.copytree(made / name, tmp_path / name)
    (tmp_path / PLAYED).rename(tmp_path / "played")
    shutil.rmtree(tmp_path / "r/timings")
    return Rollout(tmp_path / "played")


def beside(steps: Callable[[], None]) -> threading.Thread:
    """What happens while the command of the test runs."""
    thread = threading.Thread(target=steps)
    thread.start()
    return thread


def judged(group: int) -> bool:
    return (AHEAD / f"part-{group:05d}.parquet").exists()


def test_groups_are_judged_while_others_are_played_and_the_shard_is_that_of_a_plain_call(
    rla: Rla, rollout: Rollout, tmp_path: Path
) -> None:
    def play() -> None:
        for group in (2, 0, 3, 1):  # as they end
            rollout.play(group)
            until(lambda: judged(group), seconds=60)  # noqa: B023
        time.sleep(4 * POLL)  # all is judged, and the call waits
        rollout.finish()

    thread = beside(play)
    code, said, error = rla(*FOLLOW)
    thread.join()
    assert code == 0 and "steps: 96" in said and "follows r/1/trajectories" in error
    assert contents(tmp_path / SCORES) == contents(tmp_path / "calm") and not AHEAD.exists()
    (call,) = json.loads(Path("r/timings/1-score-steps.json").read_text())["calls"]
    assert 0 < call["figures"]["idle_seconds"] < call["seconds"]


def test_what_was_judged_stays_when_the_call_or_the_rollout_ends_too_early(
    rla: Rla, rollout: Rollout, tmp_path: Path
) -> None:
    rollout.play(0, 1)
    code, _, error = rla(*FOLLOW[:-1], "1.5")
    assert code == 2 and "r/1/trajectories: nothing new for 1.5 s" in error
    assert judged(0) and judged(1) and not SCORES.exists()
    before = (AHEAD / "part-00000.parquet").stat().st_ino
    again = Rollout(tmp_path / "played")
    assert again.writer.done == {0, 1}

    def play() -> None:
        again.play(2, 3)
        until(lambda: judged(3), seconds=60)
        assert (AHEAD / "part-00000.parquet").stat().st_ino == before
        again.finish()

    thread = beside(play)
    assert rla(*FOLLOW)[0] == 0
    thread.join()
    assert contents(tmp_path / SCORES) == contents(tmp_path / "calm")


def test_a_plain_call_takes_over_what_a_following_one_has_judged(rla: Rla, rollout: Rollout, tmp_path: Path) -> None:
    rollout.play(0, 1, 2, 3)
    assert rla(*FOLLOW[:-1], "1")[0] == 2 and judged(3)
    (AHEAD / "part-00001.parquet").write_bytes(b"damaged")
    rollout.finish()
    assert rla("score-steps", "--run", "r")[0] == 0
    assert contents(tmp_path / SCORES) == contents(tmp_path / "calm") and not AHEAD.exists()


def test_a_group_that_is_played_anew_is_judged_anew(rla: Rla, rollout: Rollout, tmp_path: Path) -> None:
    """A rollout that met too many broken episodes removes their groups; its next call plays them again."""
    whole = rollout.groups[1]
    rollout.groups[1] = whole[:2]
    rollout.play(1)
    assert rla(*FOLLOW[:-1], "1")[0] == 2 and judged(1)
    rollout.writer.discard(rollout.writer.part(1))
    rollout.groups[1] = whole
    rollout.play(0, 1, 2, 3)
    thread = beside(rollout.finish)
    assert rla(*FOLLOW)[0] == 0
    thread.join()
    assert contents(tmp_path / SCORES) == contents(tmp_path / "calm")


def test_slices_judge_their_own_groups_although_one_without_steps_is_none(
    rla: Rla, rollout: Rollout, tmp_path: Path
) -> None:
    """Groups 1, 2, 3 of the trajectories are groups 0, 1, 2 of the scores: slices had other ones in mind."""
    rollout.groups[0] = [row | {"steps": []} for row in rollout.groups[0]]
    rollout.play(0, 1, 2, 3)
    for index in (1, 2):
        assert rla(*FOLLOW[:-1], "1", "--slice", f"{index}/2")[0] == 2
    assert [judged(group) for group in range(4)] == [False, True, True, True]
    rollout.finish()
    assert rla("score-steps", "--run", "r", "--out", "plain", "--slice", "1/2")[0] == 0
    assert rla("score-steps", "--run", "r", "--out", "plain", "--slice", "2/2")[0] == 0
    code, said, _ = rla(*FOLLOW, "--slice", "2/2")
    assert code == 0 and "missing slices: 1/2" in said
    assert rla(*FOLLOW, "--slice", "1/2")[0] == 0
    assert contents(tmp_path / SCORES) == contents(tmp_path / "plain") and not AHEAD.exists()
    assert len(list(SCORES.glob("part-*"))) == 3


def test_trajectories_of_another_origin_are_not_judged_on(rla: Rla, rollout: Rollout, tmp_path: Path) -> None:
    def replace() -> None:
        rollout.play(0)
        until(lambda: judged(0), seconds=60)
        Rollout(tmp_path / "played", config="another").play(1)

    thread = beside(replace)
    code, _, error = rla(*FOLLOW)
    thread.join()
    assert code == 2 and "r/1/trajectories: replaced while it was followed" in error and not SCORES.exists()
    Rollout(tmp_path / "played", config="another").play(0, 2, 3)
    Rollout(tmp_path / "played", config="another").finish()
    assert rla(*FOLLOW)[0] == 0  # the next call follows the new one; group 0 holds the same episodes
    assert [read_part(path).to_pylist() for path in sorted(SCORES.glob("part-*"))] == [
        read_part(path).to_pylist() for path in sorted(Path("calm").glob("part-*"))
    ]


def test_scores_of_other_parameters_are_refused_before_anything_is_judged(
    rla: Rla, rollout: Rollout, tmp_path: Path
) -> None:
    shutil.copytree("calm", SCORES)
    code, _, error = rla(*FOLLOW, "--set", "judge.votes=1")
    assert code == 2 and "r/1/scores: made with judge.votes 3, this call has 1; rerun with --overwrite" in error
    assert not AHEAD.exists()


def test_what_cannot_be_judged_before_all_is_played_is_refused(rla: Rla) -> None:
    code, _, error = rla(*FOLLOW, "--set", "judge.tasks=training")
    assert code == 2 and "--follow: with judge.tasks training, the verdicts say what is judged" in error
    code, _, error = rla("score-steps", "--run", "r", "--follow-timeout", "5")
    assert code == 2 and "--follow-timeout says how long --follow waits" in error


@pytest.fixture
def started() -> Iterator[Callable[[list[str], Path], subprocess.Popen[bytes]]]:
    """Starts commands that end with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
        variables = environment() | {"PYTHONPATH": str(Path(__file__).parents[2])}
        running.append(
            subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.DEVNULL, start_new_session=True)
        )
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_slow_rollout_and_its_follower_in_processes_of_their_own_both_killed_in_between(
    made: Path, tmp_path: Path, started: Callable[[list[str], Path], subprocess.Popen[bytes]]
) -> None:
    shutil.copytree(made / "r", tmp_path / "r", ignore=shutil.ignore_patterns("1", "timings"))
    (tmp_path / "params.yaml").write_text(PARAMS)
    (gates := tmp_path / "gates").mkdir()
    playing = [sys.executable, "-m", "tests.integration.gated_rollout", str(gates), "rollout", "--run", "r"]
    following = ["rla", *FOLLOW[:-1], "300"]
    ahead = tmp_path / AHEAD

    def open_gates(*numbers: int) -> None:
        for number in numbers:
            (gates / str(number)).touch()

    def held() -> int:
        return len(list(ahead.glob("part-*")))

    open_gates(1, 2)
    follower, player = started(following, tmp_path), started(playing, tmp_path)
    until(lambda: held() == 2, seconds=120)
    assert player.poll() is None and not (tmp_path / PLAYED / MANIFEST).exists()
    for process in (follower, player):
        process.send_signal(signal.SIGKILL)
        process.wait()
    shutil.rmtree(gates)
    gates.mkdir()

    follower, player = started(following, tmp_path), started(playing, tmp_path)
    open_gates(1)  # of the two that are left
    until(lambda: held() == 3, seconds=120)
    assert player.poll() is None and follower.poll() is None
    open_gates(2)
    assert player.wait(120) == 0 and follower.wait(120) == 0
    assert contents(tmp_path / PLAYED) == contents(made / PLAYED)
    assert contents(tmp_path / SCORES) == contents(made / "calm") and not ahead.exists()
