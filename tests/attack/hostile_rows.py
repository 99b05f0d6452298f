"""Hostile rows: pools and every other kind of shard, well-formed as a shard, with rows that `rla` never writes.

A trial gives the shard to a stage that reads it. The stage refuses it in one line, or plays and counts what it can.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rla.errors import UserError
from rla.store.manifest import MANIFEST, read_json
from rla.store.reading import read_rows
from rla.store.shards import Origin, write_shard
from tests.attack.areas import Needs, Numbered, Try, dice
from tests.attack.calls import fault
from tests.attack.hostile import changed, loose_json, text
from tests.attack.inputs import called, own_copy, within_memory
from tests.attack.small_run import World

OUT = ("--out", "out")
TRAINED = ("--policy", "r/init/policy")
REWARDS = ("--policy-rewards", "out/p", "--rm-rewards", "out/r", "--metrics", "m.json")
READERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (  # shard, its kind, the call that reads `bad` in its place
    ("0/pool", "tasks", ("rollout", "--pool", "bad", *TRAINED, *OUT)),
    ("0/pool", "tasks", ("rollout", "--pool", "bad", *TRAINED, *OUT)),
    ("0/pool", "tasks", ("init-model", "--tasks", "bad", "--policy", "out/p", "--rm", "out/r")),
    ("test/pool", "tasks", ("evaluate", "--tasks", "bad", *OUT, "--metrics", "out.json")),
    ("1/candidates", "candidates", ("rollout", "--iteration", "2", "--candidates", "bad", *OUT)),
    ("1/trajectories", "trajectories", ("score-steps", "--trajectories", "bad", *OUT)),
    (
        "1/trajectories",
        "trajectories",
        ("validate-tasks", "--trajectories", "bad", "--verdicts", "out/v", "--standings", "out/s", "--out", "out/p"),
    ),
    ("1/standings", "standings", ("adapt-env", "--standings", "bad", *OUT)),
    ("2/rewards/policy", "policy_rewards", ("train-policy", "--iteration", "2", "--rewards", "bad", *OUT)),
    ("2/rewards/rm", "rm_rewards", ("train-rm", "--iteration", "2", "--rewards", "bad", *OUT)),
    *(
        (shard, kind, ("compute-rewards", option, "bad", *REWARDS))
        for shard, kind, option in (
            ("1/scores", "scores", "--scores"),
            ("1/verdicts", "verdicts", "--verdicts"),
            ("1/trajectories", "trajectories", "--trajectories"),
        )
    ),
)


@dataclass(frozen=True, slots=True)
class Rows(Numbered):
    """Rows of all kinds of shards, changed by lot."""

    name: str = "rows"
    together: int = 20
    seconds: float = 120.0
    needs: Needs = Needs.RUN

    def opened(self, world: World, scratch: Path) -> Try:
        folder = own_copy(world, scratch)
        within_memory()

        def tried(trial: str) -> str | None:
            lots = dice(world, f"{self.name}/{trial}")
            shard, kind, arguments = lots.choice(READERS)
            for left in ("bad", "out"):
                shutil.rmtree(folder / left, ignore_errors=True)
            for left in ("out.json", "t.json", "m.json"):
                (folder / left).unlink(missing_ok=True)
            written = hostile_shard(folder / "r" / shard, folder / "bad", kind, lots)
            if not written:
                return None  # the store refused to write it
            wrong = fault(called([*arguments, "--run", "r"]))
            return wrong and f"{arguments[0]} of {kind}: {wrong}"

        return tried


def hostile_shard(source: Path, target: Path, kind: str, lots: Random) -> bool:
    """A shard of changed rows; False where not even the store writes them."""
    rows = read_rows(source, kind)
    some = lots.sample(range(len(rows)), k=min(len(rows), lots.choice((1, 1, 2, len(rows)))))
    for index in some:
        rows[index] = hostile_row(rows[index], lots)
    if lots.random() < 0.15:
        rows += [dict(row) for row in rows[: lots.choice((1, len(rows)))]]
    if lots.random() < 0.25:
        return raw_shard(source, target, rows, lots)
    try:
        write_shard(target, kind, rows, Origin(config="", inputs={}, seed=0))
    except (UserError, pa.ArrowException, UnicodeEncodeError, TypeError, AttributeError, KeyError, ValueError):
        return False  # how it says so is no matter: no user writes rows this way
    return True


def hostile_row(row: dict[str, Any], lots: Random) -> dict[str, Any]:
    """A row with a few values changed; a text of JSON is changed inside as often as outside."""
    texts = [key for key in ("payload", "edit") if isinstance(row.get(key), str)]
    if texts and lots.random() < 0.6:
        key = lots.choice(texts)
        try:
            inner = json.loads(row[key])
        except json.JSONDecodeError:
            inner = {}
        new = (
            loose_json(changed(inner, lots, times=lots.choice((1, 1, 3))), lots) if lots.random() < 0.8 else text(lots)
        )
        return row | {key: new.encode("utf-8", "replace").decode()}
    made = changed(row, lots, times=lots.choice((1, 1, 2)))
    return made if isinstance(made, dict) else row


def raw_shard(source: Path, target: Path, rows: list[dict[str, Any]], lots: Random) -> bool:
    """The rows past the store's checks: other types of columns, columns missing or too many."""
    kind = lots.randrange(3)
    try:
        table = pa.Table.from_pylist(rows)
    except (pa.ArrowException, UnicodeEncodeError, TypeError, ValueError, AttributeError, OverflowError):
        table = pa.table({"a": [1]})
    if kind == 0 and table.num_columns > 1:
        table = table.drop_columns([lots.choice(table.column_names)])
    elif kind == 1:
        table = table.append_column(lots.choice(("extra", "task_id", "")), pa.nulls(table.num_rows))
    target.mkdir()
    pq.write_table(table, target / "part-00000.parquet")
    manifest = read_json(source / MANIFEST)
    size = (target / "part-00000.parquet").stat().st_size
    known = manifest["parts"][0] | {"name": "part-00000.parquet", "rows": table.num_rows, "bytes": size}
    manifest |= {"rows": table.num_rows, "parts": [known]}
    if lots.random() < 0.3:
        manifest = changed(manifest, lots)
    (target / MANIFEST).write_text(json.dumps(manifest))
    return True
