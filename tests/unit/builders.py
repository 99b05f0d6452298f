"""Rows of every shard kind, small enough to read: tests change one field and look at what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rla.config import Config
from rla.envs.registry import load_config
from rla.store.records import Judgement, Segment, Step, StepScore, Task, Trajectory


def configured(*overrides: str, env: str = "alfworld") -> Config:
    """All defaults of an environment, with `key=value` overrides."""
    return load_config(None, [f"env.name={env}", *overrides])


def install(site: Path, name: str, version: str, entry_points: str = "", *, metadata: str = "") -> None:
    """The metadata of a package in `site`, as an installer leaves it. `metadata`: further lines."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}")
    (info / "entry_points.txt").write_text(entry_points)


def task(name: str = "t1", **changes: Any) -> Task:
    fields: dict[str, Any] = {
        "task_id": name,
        "env": "alfworld",
        "split": "train",
        "slot": name,
        "kind": "pick_and_place_simple",
        "scene": "kitchen-1",
        "instruction": "put a mug in desk.",
        "payload": "{}",
    }
    return Task(**(fields | changes))


def step(**changes: Any) -> Step:
    fields: dict[str, Any] = {
        "observation": "You see a mug 1.",
        "commands": ("take mug 1 from desk 1",),
        "reply": "take mug 1 from desk 1",
        "action": "take mug 1 from desk 1",
        "valid": True,
        "truncated": False,
        "segment": 0,
        "start": 2,
        "end": 4,
    }
    return Step(**(fields | changes))


def trajectory(name: str = "a", **changes: Any) -> Trajectory:
    fields: dict[str, Any] = {
        "trajectory_id": name,
        "task_id": "t1",
        "slot": "t1",
        "status": "active",
        "iteration": 1,
        "rollout": 0,
        "seed": 7,
        "outcome": 1,
        "stop_reason": "won",
        "instruction": "put a mug in desk.",
        "kind": "pick_and_place_simple",
        "policy": "0" * 16,
        "steps": [step()],
        "segments": [
            Segment(
                token_ids=[5, 6, 7, 2],
                sampled=[False, False, True, True],
                logprobs=[0.0, 0.0, -0.5, 0.0],
                allowed=[[7, 8], [2]],
            )
        ],
        "final_observation": "You won.",
    }
    return Trajectory(**(fields | changes))


def score(name: str = "a", votes: tuple[int | None, ...] = (1, 1, -1), **changes: Any) -> StepScore:
    valid = [vote for vote in votes if vote is not None]
    fields: dict[str, Any] = {
        "trajectory_id": name,
        "task_id": "t1",
        "step": 0,
        "prompt_ids": [1, 2, 3],
        "mean_score": sum(valid) / len(valid) if valid else None,
        "judgements": [
            Judgement(
                score=vote, text="score", truncated=False, token_ids=[4, 2], logprobs=[-0.1, -0.2], allowed=[[], []]
            )
            for vote in votes
        ],
    }
    return StepScore(**(fields | changes))
