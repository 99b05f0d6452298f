"""A first stage that was killed while it made what was missing: the same call goes on."""

from __future__ import annotations

import json
from pathlib import Path

from rla.store.manifest import MANIFEST, STARTED, read_json
from tests.integration.conftest import Rla
from tests.integration.pipelines import contents

ORIGIN = ("kind", "schema_version", "config_digest", "input_digests", "seed")


def begun(pool: Path, *, parts: bool) -> None:
    """The folder as a call leaves it that is killed before its manifest, with its part or before it."""
    manifest = read_json(pool / MANIFEST)
    (pool / STARTED).write_text(json.dumps({key: manifest[key] for key in ORIGIN}))
    for path in [pool / MANIFEST, *(() if parts else pool.glob("part-*"))]:
        path.unlink()


def test_a_pool_that_was_begun_is_finished_by_the_stage_that_wants_it(rla: Rla, tmp_path: Path) -> None:
    assert rla("make-tasks", "--run", "r", "--split", "train")[0] == 0
    pool = tmp_path / "r/0/pool"
    whole = contents(pool)
    for parts in (True, False):
        begun(pool, parts=parts)
        code, _, said = rla("init-model", "--run", "r")
        assert code == 0, said
        assert contents(pool) == whole
    for path in pool.iterdir():
        path.unlink()  # killed before its first file
    assert rla("init-model", "--run", "r")[0] == 0 and contents(pool) == whole


def test_a_call_that_was_killed_after_the_manifest_leaves_nothing(rla: Rla, tmp_path: Path) -> None:
    assert rla("make-tasks", "--run", "r", "--split", "train")[0] == 0
    pool = tmp_path / "r/0/pool"
    whole = contents(pool)
    (pool / STARTED).write_bytes((pool / MANIFEST).read_bytes())
    assert rla("init-model", "--run", "r")[0] == 0 and contents(pool) == whole


def test_a_pool_that_another_call_began_is_left_to_it(rla: Rla, tmp_path: Path) -> None:
    assert rla("make-tasks", "--run", "r", "--split", "train", "--set", "tasks.train_scenes=2")[0] == 0
    pool = tmp_path / "r/0/pool"
    begun(pool, parts=True)
    before = contents(pool)
    code, _, said = rla("init-model", "--run", "r", "--set", "tasks.train_scenes=3")
    (error,) = [line for line in said.splitlines() if line.startswith("error:")]
    assert code == 2 and "not finished; call the `rla make-tasks` that began it again" in error
    assert contents(pool) == before
