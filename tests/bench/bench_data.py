"""What reading shards for training adds to a process, for few trajectories and for many: part of `bench-train`.

Rows as `rollout` writes them, 4,096 tokens each. Each figure is of a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rla.store.reading import stream_rows
from rla.store.shards import Origin, ShardWriter
from rla.training.sequences import StoredSequences, policy_sequences, write_sequences
from tests.bench.resident import peak_resident

PARTS, ROWS, LENGTH = (4, 32), 16, 4096  # parts of the two shards, trajectories of a part, tokens of a trajectory


def row(name: str) -> dict[str, Any]:
    ids = [(7 * index + len(name)) % 1000 for index in range(LENGTH)]
    step = {"observation": "", "commands": [], "reply": "", "action": "", "valid": True, "truncated": False}
    segment = {
        "token_ids": ids,
        "sampled": [index > 0 for index in range(LENGTH)],
        "logprobs": [-1.0] * LENGTH,
        "allowed": [[] for _ in range(LENGTH - 1)],
    }
    texts = ("trajectory_id", "task_id", "slot", "kind", "policy", "instruction", "final_observation")
    return {
        **dict.fromkeys(texts, name),
        **{"status": "active", "iteration": 1, "rollout": 0, "seed": 0, "outcome": 1},
        **{"stop_reason": "won", "error": None},
        "steps": [{**step, "segment": 0, "start": 1, "end": LENGTH}],
        "segments": [segment],
    }


def shard(folder: Path, *, parts: int) -> None:
    writer = ShardWriter(folder, "trajectories", Origin(config="", inputs={}, seed=0))
    for part in range(parts):
        writer.write(part, [row(f"{part}-{number}") for number in range(ROWS)])
    writer.finish()


def read(folder: Path, *, parts: int) -> None:
    """Print MiB of peak memory before and after the sequences of the shard were stored and each read once."""

    def rewards() -> Iterator[dict[str, Any]]:
        for part in range(parts):
            for number in range(ROWS):
                yield {"trajectory_id": f"{part}-{number}", "step": 0, "advantage": 1.0}

    list(policy_sequences(stream_rows(folder, "trajectories", ["trajectory_id"], keys=()), []))
    before = peak_resident()
    rows = stream_rows(folder, "trajectories", ["trajectory_id", "steps", "segments"])
    file = folder / "sequences.jsonl"
    stored = StoredSequences(
        file, write_sequences(file, policy_sequences(rows, rewards()), max_tokens=LENGTH, budget=LENGTH)
    )
    tokens = sum(len(one.token_ids) for one in stored)
    print(tokens, (peak_resident() - before) / 2**20, file.stat().st_size / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--parts", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read, parts=options.parts)
        return
    print(f"data: trajectories of {LENGTH} tokens, all sampled; memory that storing and reading all adds")
    for parts in PARTS:
        with tempfile.TemporaryDirectory() as folder:
            shard(Path(folder), parts=parts)
            command = [sys.executable, "-m", "tests.bench.bench_data", "--read", folder, "--parts", str(parts)]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        tokens, added, size = float(said[0]), float(said[1]), float(said[2])
        print(
            f"  {parts * ROWS:>4} trajectories  {tokens:>9,.0f} tokens  {size:5.0f} MiB stored  {added:5.0f} MiB added"
        )


if __name__ == "__main__":
    main()
