"""Two scripted iterations of ALFWorld, and digests of the rows that they write.

`python -m tests.integration.golden` writes `golden.json` anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from rla.cli.app import run
from rla.store.reading import read_rows
from rla.store.schema import optional_columns

GOLDEN = Path(__file__).with_name("golden.json")
SHARDS = {
    "0/pool": "tasks",
    "test/pool": "tasks",
    "1/trajectories": "trajectories",
    "1/scores": "scores",
    "1/verdicts": "verdicts",
    "1/standings": "standings",
    "1/pool": "tasks",
    "1/rewards/policy": "policy_rewards",
    "1/rewards/rm": "rm_rewards",
    "1/candidates": "candidates",
    "2/trajectories": "trajectories",
    "2/scores": "scores",
    "2/verdicts": "verdicts",
    "2/pool": "tasks",
    "2/rewards/policy": "policy_rewards",
    "2/rewards/rm": "rm_rewards",
    "eval/0/trajectories": "trajectories",
}
SHARED = """
seed: 11
model: {hidden_size: 32, layers: 1, heads: 2, intermediate_size: 32, context: 2048}
launch: {threads: 1}
generator: {backend: scripted, context: 2048}
train_policy: {enabled: false}
train_rm: {enabled: false}
warm_start: {enabled: false}
"""
ALFWORLD = """
env: {name: alfworld, max_steps: 8, omit_commands: [look, inventory, help, examine]}
tasks: {size: tiny, train_scenes: 6, test_scenes: 3, tasks_per_scene: 2}
policy: {reply: text, repeat_task: true, history: full, decoding: admissible, max_tokens: 16, temperature: 1.0}
judge: {prompt: plain, decoding: admissible, max_tokens: 16, temperature: 1.0}
rollout: {tasks_per_iteration: 6, rollouts_per_task: 4}
credit: {reward_model_band: [0.0, 1.0], normalise: task, policy_band: [-1, 2]}
adaptation: {max_tasks: 4}
evaluation: {rollouts_per_task: 2, max_steps: 8}
"""
LOOP = ("rollout", "score-steps", "validate-tasks", "compute-rewards", "train-policy", "train-rm", "adapt-env")


LATER = {"trajectories": ("places",)}  # columns with a line of their own


def rows_digest(folder: Path, kind: str) -> str:
    """The number of rows and 16 hex digits of their JSON, without the digest of the policy that played, and without
    optional columns in which no row has a value.
    """
    rows = read_rows(folder, kind)
    empty = {name for name in optional_columns(kind) if all(row[name] is None for row in rows)}
    apart = {"policy", *LATER.get(kind, ()), *empty}
    return digest_of([{name: value for name, value in row.items() if name not in apart} for row in rows])


def later_digests(folder: Path, kind: str) -> dict[str, str]:
    """Of each column that came later, the same by its name."""
    rows = read_rows(folder, kind)
    return {name: digest_of([row.get(name) for row in rows]) for name in LATER.get(kind, ())}


def digest_of(rows: list[Any]) -> str:
    text = json.dumps(rows, sort_keys=True)
    return f"{len(rows)} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def called(*arguments: str) -> None:
    assert run([*arguments, "--run", "r"]) == 0, arguments


def turned(folder: Path, params: str) -> dict[str, str]:
    """Digests of all shards of two iterations in the working folder, which is `folder`."""
    (folder / "params.yaml").write_text(SHARED + params)
    called("make-tasks")
    called("init-model")
    called("warm-start")
    called("evaluate")
    for iteration in ("1", "2"):
        for stage in LOOP:
            called(stage, "--iteration", iteration)
    rows = {name: rows_digest(folder / "r" / name, kind) for name, kind in SHARDS.items()}
    later = {name: later_digests(folder / "r" / name, kind) for name, kind in SHARDS.items()}
    return rows | {f"{name} {column}": found for name, columns in later.items() for column, found in columns.items()}


def alfworld(folder: Path) -> dict[str, str]:
    return turned(folder, ALFWORLD)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = alfworld(Path(folder))
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
