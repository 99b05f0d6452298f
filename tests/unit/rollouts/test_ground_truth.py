"""`compute-rewards` measures the judge against the environment: from shards, again and again, and with other tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rla.cli.app import run
from rla.envs.alfworld.environment import Alfworld
from rla.envs.alfworld.tasks import task_from_game
from rla.store.manifest import MANIFEST
from rla.store.records import Task, Trajectory
from rla.store.shards import Origin, write_shard
from tests.unit.builders import configured, score, step, trajectory
from tests.unit.envs.alfworld import scenes

ORIGIN = Origin(config="c", inputs={}, seed=0)
ACTIVE = task_from_game(scenes.game(), split="train", scene="kitchen")
PENDING = task_from_game(
    scenes.game(item="Apple", target="Fridge", sentence="put an apple in fridge."),
    split="train",
    scene="kitchen",
    status="pending",
)
# One step nearer, one that changes nothing, one that the engine refuses.
ACTIONS = ["go to countertop 1", "look", "no action"]
VOTES = [(1, 1, 1), (1, -1, -1), (None, None, -1)]


def episode(task: Task, name: str, **changes: Any) -> Trajectory:
    engine = Alfworld().make(task, configured())
    seen = [engine.reset().text, *(engine.step(action).text for action in ACTIONS)]
    steps = [step(action=action, observation=text) for action, text in zip(ACTIONS, seen[:-1], strict=True)]
    fields: dict[str, Any] = {
        "task_id": task.task_id,
        "outcome": -1,
        "stop_reason": "max_steps",
        "final_observation": seen[-1],
    }
    return trajectory(name, steps=steps, **(fields | changes))


def make_run(folder: Path, pending: list[Task]) -> Path:
    """A run in which every task was played once, up to `compute-rewards` of its first iteration."""
    tasks = [ACTIVE, *pending]
    rows = {
        "0/pool": ("tasks", [ACTIVE.row()]),
        "1/verdicts": ("verdicts", []),
        "1/trajectories": ("trajectories", [episode(task, task.task_id).row() for task in tasks]),
        "1/scores": (
            "scores",
            [
                score(task.task_id, votes, task_id=task.task_id, step=index).row()
                for task in tasks
                for index, votes in enumerate(VOTES)
            ],
        ),
    }
    counts = dict.fromkeys(("steps", "invalid_actions", "truncated", "context_stops", "env_errors"), 0)
    for name, (kind, content) in rows.items():
        write_shard(folder / name, kind, content, ORIGIN, counts=counts if kind == "trajectories" else {})
    return folder


def add_candidate(folder: Path) -> None:
    proposed = {"valid": True, "reason": "", "parent_accuracy": 0.5, "critique": ""}
    write_shard(folder / "0/candidates", "candidates", [PENDING.row() | proposed], ORIGIN)


def metrics(folder: Path, *arguments: str) -> dict[str, Any]:
    assert run(["compute-rewards", "--run", str(folder), *arguments]) == 0
    found: dict[str, Any] = json.loads((folder / "1/metrics.json").read_text())
    return found


def test_votes_are_measured_against_a_replay_of_the_episode(tmp_path: Path) -> None:
    # Labels + - -; votes +++ right, +-- two of three right, one valid - right: 6 of 7.
    found = metrics(make_run(tmp_path, []))
    assert found["rm_process_accuracy"] == pytest.approx(6 / 7)
    assert (found["labelled_steps"], found["unlabelled_episodes"]) == (3, 0)


def test_judgements_of_an_episode_that_the_environment_broke_count_nowhere(tmp_path: Path) -> None:
    # +++ agrees, +-- agrees in one pair of three, one vote has no pair: 2/3. The broken episode's votes never agree.
    whole, broken = make_run(tmp_path / "whole", []), make_run(tmp_path / "broken", [])
    trajectories = [episode(ACTIVE, ACTIVE.task_id), episode(ACTIVE, "broken", stop_reason="env_error")]
    votes = {ACTIVE.task_id: VOTES, "broken": [(1, -1)] * len(VOTES)}
    scores = [
        score(name, judged, task_id=ACTIVE.task_id, step=index).row()
        for name, of_steps in votes.items()
        for index, judged in enumerate(of_steps)
    ]
    counts = dict.fromkeys(("steps", "invalid_actions", "truncated", "context_stops", "env_errors"), 0)
    other = Origin(config="broken", inputs={}, seed=0)
    rows = [played.row() for played in trajectories]
    write_shard(broken / "1/trajectories", "trajectories", rows, other, counts=counts, overwrite=True)
    write_shard(broken / "1/scores", "scores", scores, other, overwrite=True)
    found = metrics(broken)
    assert found["self_agreement"] == pytest.approx(2 / 3)
    assert found == metrics(whole)


def test_pending_tasks_are_labelled_from_the_candidates(tmp_path: Path) -> None:
    folder = make_run(tmp_path, [PENDING])
    assert metrics(folder)["unlabelled_episodes"] == 1
    add_candidate(folder)
    found = metrics(folder)
    assert (found["unlabelled_episodes"], found["labelled_steps"]) == (0, 6)


def test_a_call_that_was_killed_before_its_metrics_is_made_whole_by_the_next(tmp_path: Path) -> None:
    folder = make_run(tmp_path, [])
    whole = metrics(folder)
    (folder / "1/metrics.json").unlink()
    assert metrics(folder) == whole


def test_what_only_the_metrics_depend_on_does_not_make_the_rewards_others(tmp_path: Path) -> None:
    folder = make_run(tmp_path, [])
    metrics(folder)
    manifest = (folder / "1/rewards/policy" / MANIFEST).read_bytes()
    other = metrics(folder, "--set", "env.omit_commands=[help]")  # no --overwrite, and nothing is refused
    assert (folder / "1/rewards/policy" / MANIFEST).read_bytes() == manifest
    assert other["episodes"] == 1


def test_another_judge_is_measured_without_a_turn_of_the_loop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = make_run(tmp_path / "r", []), tmp_path / "other.json"
    rows = [score(ACTIVE.task_id, (vote,), task_id=ACTIVE.task_id, step=i).row() for i, vote in enumerate((1, -1, -1))]
    write_shard(tmp_path / "other", "scores", rows, ORIGIN)
    arguments = ["--run", str(folder), "--scores", str(tmp_path / "other"), "--out", str(out)]
    assert run(["judge-accuracy", *arguments]) == 0
    assert "rm_process_accuracy: 1" in capsys.readouterr().out
    assert json.loads(out.read_text())["rm_process_balanced"] == 1.0
    assert run(["judge-accuracy", "--run", str(folder)]) == 0
    measured = json.loads((folder / "1/judge-accuracy.json").read_text())
    assert measured["rm_process_accuracy"] == metrics(folder)["rm_process_accuracy"]


def test_a_missing_pool_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path, [])
    (folder / "0/pool").rename(folder / "0/elsewhere")
    assert run(["compute-rewards", "--run", str(folder)]) == 2
    assert "0/pool" in capsys.readouterr().err
    assert run(["compute-rewards", "--run", str(folder), "--pool", str(folder / "0/elsewhere")]) == 0
