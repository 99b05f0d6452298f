"""A run that was played once, every text of which tries to act where it is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.config import resolved
from rla.envs.alfworld.tasks import task_from_game
from rla.store.manifest import write_run_config
from rla.store.records import Judgement, ShownImage
from rla.store.shards import Origin, write_shard
from tests.unit.builders import configured, score, step, trajectory
from tests.unit.envs.alfworld import scenes

ORIGIN = Origin(config="c", inputs={}, seed=0)
COUNTS = dict.fromkeys(("episodes", "won", "steps", "invalid_actions", "truncated", "context_stops", "env_errors"), 0)
ATTACKS = (
    "<script>window.owned = 1; alert('owned')</script>",
    "<img src=x onerror=\"window.owned = 1; alert('owned')\">",
    '<svg onload="window.owned = 1"></svg><style>body { display: none }</style>',
    "![p](http://127.0.0.1:9/leak.png) [click](javascript:window.owned=1) [click](http://127.0.0.1:9/x) **bold** <http://127.0.0.1:9/>",
    '```\n<iframe src="javascript:parent.owned=1"></iframe>\n````\n# heading\n$$\\href{javascript:owned=1}{x}$$',
    "\x1b]0;owned\x07\x1b[31mred\u202etxt\u200b",
    "</textarea></title></script><base href=http://127.0.0.1:9/><meta http-equiv=refresh content=0;url=http://127.0.0.1:9/>",
)
HOSTILE = "\n\n".join(ATTACKS)
# One white point.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8ffff3f0005fe02fe0d"
    "eb1b0c0000000049454e44ae426082"
)


def hostile_run(run: Path, *, text: str = HOSTILE, pictures: bool = False, rollouts: int = 2) -> Path:
    """One task, as many rollouts of two steps, votes on both steps."""
    task = replace(task_from_game(scenes.game(), split="train", scene="kitchen"), instruction=f"find it {text}")
    shown = {"digest": "0" * 64, "png": PNG, "shown": [{"observation": 0, "position": 0}]}
    rows = []
    votes = []
    for number in range(rollouts):
        won = number == 0
        steps = [step(observation=f"seen {text}", reply=f"said {text}", action=f"did {text}", valid=won)] * 2
        fields: dict[str, Any] = {
            "task_id": task.task_id,
            "slot": task.slot,
            "rollout": number,
            "outcome": 1 if won else -1,
            "stop_reason": "won" if won else "max_steps",
            "instruction": task.instruction,
            "steps": steps,
            "final_observation": f"the end {text}",
            "images": [ShownImage(**shown)] if pictures else None,
        }
        name = f"{number:016x}"
        rows.append(trajectory(name, **fields).row())
        votes += [score(name, task_id=task.task_id, step=index, judgements=said(text)).row() for index in range(2)]
    write_run_config(run, resolved(configured()))
    write_shard(run / "0/pool", "tasks", [task.row()], ORIGIN)
    write_shard(run / "1/trajectories", "trajectories", rows, ORIGIN, counts=COUNTS)
    write_shard(run / "1/scores", "scores", votes, ORIGIN)
    paid = [
        {"trajectory_id": row["trajectory_id"], "task_id": task.task_id, "step": index, "outcome": row["outcome"]}
        | {"mean_score": 0.0, "reward": 0.5, "advantage": 1.25}
        for row in rows
        for index in range(2)
    ]
    write_shard(run / "1/rewards/policy", "policy_rewards", paid, ORIGIN)
    return run


def said(text: str) -> list[Judgement]:
    fields: dict[str, Any] = {"truncated": False, "token_ids": [4], "logprobs": [0.0], "allowed": [[]]}
    return [Judgement(score=vote, text=f"because {text}", **fields) for vote in (1, -1, None)]
