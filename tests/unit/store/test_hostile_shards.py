"""Manifests and pools that somebody else has written: one UserError names the file, before anything relies on it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rla.errors import UserError
from rla.store import reading
from rla.store.atomic import Slice
from rla.store.manifest import MANIFEST
from rla.store.reading import (
    DEEPEST,
    nested_too_deeply,
    read_candidates,
    read_manifest,
    read_rows,
    read_tasks,
    stream_rows,
    tasks_by_id,
)
from rla.store.schema import arrow_schema
from rla.store.shards import Origin, ShardWriter, part_entry, write_shard
from tests.unit.builders import score, task, trajectory
from tests.unit.store.shard_damage import edit_record

COLUMNS = [
    *("trajectory_id", "steps", "segments", "final_observation", "stop_reason", "places", "image_spans"),
]
ORIGIN = Origin(config="c1", inputs={}, seed=0)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    write_shard(tmp_path / "pool", "tasks", [task("t1").row(), task("t2").row()], ORIGIN, counts={"tasks": 2})
    return tmp_path / "pool"


def changed(folder: Path, **changes: Any) -> None:
    """The manifest of a shard with other entries; None removes one."""
    edit_record(
        folder / MANIFEST,
        lambda record: {key: value for key, value in (record | changes).items() if value is not None},
    )


def replaced(folder: Path, table: pa.Table) -> None:
    """The only part of a shard with another content, as the manifest says."""
    part = folder / "part-00000.parquet"
    pq.write_table(table, part)
    changed(folder, rows=table.num_rows, parts=[part_entry(part)])


def pool_of(folder: Path, **columns: Any) -> None:
    """The pool's first task with other values, as a program other than `rla` would write it."""
    schema = pa.schema([pa.field(field.name, field.type) for field in arrow_schema("tasks")])
    replaced(folder, pa.Table.from_pylist([task("t1").row() | columns], schema=schema))


@pytest.mark.parametrize("inputs", [[1], {"0": 3}])
def test_inputs_that_are_no_digests_are_named(pool: Path, inputs: object) -> None:
    changed(pool, input_digests=inputs)
    with pytest.raises(UserError, match=r"pool/_manifest\.parquet: its input_digests are not digests"):
        read_manifest(pool)


@pytest.mark.parametrize(
    "change",
    [
        {"parts": None},
        {"parts": {}},
        {"parts": [3]},
        {"parts": [{}]},
        {"parts": [{"name": "part-00000.parquet", "rows": 2}]},
        {"parts": [{"name": "../part-00000.parquet", "rows": 2, "bytes": 3}]},
        {"parts": [{"name": "part-00000.parquet", "rows": "2", "bytes": 3}]},
        {"parts": [{"name": "part-00000.parquet", "rows": 2, "bytes": 3}] * 2},
        {"parts": []},
        {"rows": 3},
        {"counts": None},
        {"counts": [1]},
        {"counts": {"steps": "many"}},
    ],
)
def test_a_manifest_that_is_none_is_named_and_made_again(pool: Path, change: Mapping[str, Any]) -> None:
    changed(pool, **change)
    readers: list[Callable[[], object]] = [
        lambda: read_manifest(pool, "tasks"),
        lambda: read_rows(pool, "tasks"),
        lambda: ShardWriter(pool, "tasks", ORIGIN),
    ]
    for read in readers:
        with pytest.raises(UserError, match=r"pool/_manifest\.parquet: .*with --overwrite"):
            read()
    write_shard(pool, "tasks", [task("t1").row()], ORIGIN, overwrite=True)  # the remedy that the message names
    assert len(read_rows(pool, "tasks")) == 1


def test_counts_that_are_missing_are_a_flaw_of_the_file(pool: Path) -> None:
    changed(pool, counts={})
    with pytest.raises(UserError, match=r"_manifest\.parquet: its counts have no steps; rerun"):
        read_manifest(pool, "tasks")["counts"]["steps"]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, "9" * 5000, "", "null"])
def test_a_manifest_that_is_no_object_is_named(pool: Path, text: str) -> None:
    (pool / MANIFEST).write_text(text)
    with pytest.raises(UserError, match=r"_manifest\.parquet"):
        read_manifest(pool, "tasks")


def test_a_slice_whose_manifest_has_no_parts_is_named(tmp_path: Path) -> None:
    for part in (Slice(index=1, count=2), Slice(index=2, count=2)):
        writer = ShardWriter(tmp_path / "x", "tasks", ORIGIN, part=part)
        writer.write(part.index - 1, [task(f"t{part.index}").row()])
        if part.index == 1:
            writer.finish({"tasks": 1})
    path = tmp_path / "x/_manifest-1-of-2.parquet"
    edit_record(path, lambda record: {key: value for key, value in record.items() if key != "parts"})
    with pytest.raises(UserError, match=r"_manifest-1-of-2\.parquet: its parts are not a list"):
        writer.finish({"tasks": 1})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"status": "odd"}, "tasks.status: 'odd' is not one of"),
        ({"status": None}, "tasks.status: null is not allowed"),
        ({"payload": None}, "tasks.payload: null is not allowed"),
        ({"depth": -1}, "tasks.depth: -1 is below 0"),
        ({"payload": "[" * 100_000 + "]" * 100_000}, "its payload is nested deeper"),
        ({"payload": '{"a": ' * 100_000 + "1" + "}" * 100_000}, "its payload is nested deeper"),
        ({"payload": "[" * 300}, "its payload is nested deeper"),
        ({"edit": "[" * 100_000}, "its edit is nested deeper"),
    ],
)
def test_a_task_that_no_pool_can_hold_is_refused(pool: Path, columns: dict[str, Any], message: str) -> None:
    pool_of(pool, **columns)
    with pytest.raises(UserError, match=message):
        read_tasks(pool)


def test_a_task_that_is_there_twice_is_refused(pool: Path) -> None:
    replaced(pool, pa.Table.from_pylist([task("t1").row()] * 2, schema=arrow_schema("tasks")))
    with pytest.raises(UserError, match="pool: a task is there twice"):
        read_tasks(pool)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["status"]), "columns unknown, missing or doubled: status"),
        (lambda table: table.append_column("odd", pa.array([1, 2])), "columns unknown, missing or doubled: odd"),
        (lambda table: table.append_column("kind", table.column("kind")), "columns unknown, missing or doubled"),
        (
            lambda table: table.set_column(0, "task_id", pa.array([1, 2])),
            "its column task_id is int64, not string",
        ),
        (lambda table: pa.table({"a": [1]}), "columns unknown, missing or doubled"),
    ],
)
def test_a_part_with_other_columns_is_named(pool: Path, change: Callable[[pa.Table], pa.Table], message: str) -> None:
    replaced(pool, change(pq.ParquetFile(pool / "part-00000.parquet").read()))
    for read in (lambda: read_tasks(pool), lambda: tasks_by_id(pool, "tasks", ["t1"])):
        with pytest.raises(UserError, match=message) as error:
            read()
        assert "part-00000.parquet" in str(error.value)


def test_columns_inside_of_columns_are_looked_at_as_well(tmp_path: Path) -> None:
    write_shard(tmp_path / "x", "trajectories", [trajectory("a").row()], ORIGIN)
    table = pq.ParquetFile(tmp_path / "x/part-00000.parquet").read()
    replaced(tmp_path / "x", table.set_column(table.column_names.index("steps"), "steps", pa.array([[{"odd": 1}]])))
    with pytest.raises(UserError, match="its column steps is list"):
        list(stream_rows(tmp_path / "x", "trajectories", ["trajectory_id", "steps"]))


def test_what_environments_write_is_not_too_deep() -> None:
    assert not nested_too_deeply("[" * DEEPEST + "]" * DEEPEST)
    assert nested_too_deeply("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1))
    assert not nested_too_deeply(json.dumps([{"a": [1]}] * 10_000))
    assert not nested_too_deeply(json.dumps(["[" * 1000, '"[' * 1000]))  # brackets in a text
    assert not nested_too_deeply('"' + '\\"' * 200_000 + "\\")
    assert not nested_too_deeply('"' + '\\"' * 200_000)  # not JSON, as its environment says: nothing is searched twice


def test_a_pool_of_candidates_is_read_as_before(tmp_path: Path) -> None:
    assert read_candidates(tmp_path / "none") == []


def written(folder: Path, kind: str, *rows: Mapping[str, Any]) -> Path:
    """A shard with these rows, as a program other than `rla` would write it: nothing of them is checked."""
    made = {"trajectories": trajectory().row(), "scores": score().row()}[kind]
    write_shard(folder, kind, [made], ORIGIN)
    fields = [pa.field(field.name, field.type) for field in arrow_schema(kind)]
    replaced(folder, pa.Table.from_pylist(list(rows), schema=pa.schema(fields)))
    return folder


def episode(**changes: Any) -> dict[str, Any]:
    return trajectory().row() | changes


def segments(**changes: Any) -> dict[str, Any]:
    """An episode whose only segment has other columns."""
    [own] = trajectory().row()["segments"]
    return episode(segments=[own | changes])


def steps(**changes: Any) -> dict[str, Any]:
    [own] = trajectory().row()["steps"]
    return episode(steps=[own | changes])


def span(**changes: int) -> dict[str, Any]:
    return episode(image_spans=[{"segment": 0, "digest": "d", "start": 0, "length": 1} | changes])


EPISODES = [
    pytest.param(segments(token_ids=[5, -1, 7, 2]), "token_ids.*-1 is below 0", id="token id -1"),
    pytest.param(segments(logprobs=[0.0, 0.0, -0.5]), "different lengths", id="log-probabilities one short"),
    pytest.param(segments(logprobs=[0.0, 0.0, 0.7, 0.0]), "is above 0", id="positive log-probability"),
    pytest.param(segments(logprobs=[0.0, 0.0, float("nan"), 0.0]), "not a finite number", id="NaN"),
    pytest.param(segments(sampled=[False, True, True]), "different lengths", id="sampled one short"),
    pytest.param(segments(allowed=[[7]]), "lacks the allowed ids", id="allowed one short"),
    pytest.param(segments(allowed=[[7, -2], [2]]), "-2 is below 0", id="allowed id -2"),
    pytest.param(steps(segment=99), "a segment that is not there", id="segment 99"),
    pytest.param(steps(end=9), "span of a step", id="span beyond the segment"),
    pytest.param(steps(start=4, end=2), "span of a step", id="span backwards"),
    pytest.param(episode(places=["p", "q", "r"]), "places are not as many", id="places too many"),
    pytest.param(episode(places=[]), "places are not as many", id="places none"),
    pytest.param(episode(final_observation=None), "final_observation: null", id="final_observation null"),
    pytest.param(episode(stop_reason="tired"), "'tired' is not one of", id="stop reason"),
    pytest.param(span(segment=3), "picture stands in a segment", id="picture's segment"),
    pytest.param(span(start=3, length=2), "picture stands behind the end", id="picture's span"),
]


@pytest.mark.parametrize("read", [read_rows, lambda *given: list(stream_rows(*given, COLUMNS))], ids=["rows", "stream"])
@pytest.mark.parametrize(("row", "message"), EPISODES)
def test_an_episode_that_no_stage_writes_is_named(
    tmp_path: Path, row: Mapping[str, Any], message: str, read: Callable[..., Any]
) -> None:
    folder = written(tmp_path / "shard", "trajectories", row)
    with pytest.raises(UserError, match=rf"shard/part-00000\.parquet: .*{message}.*rerun the stage"):
        read(folder, "trajectories")


def judged(**changes: Any) -> dict[str, Any]:
    row = score().row()
    return row | {"judgements": [one | changes for one in row["judgements"]]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (judged(logprobs=[-0.1]), "different lengths"),
        (judged(allowed=[]), "different lengths"),
        (judged(logprobs=[-0.1, 0.2]), "is above 0"),
        (judged(token_ids=[4, -1]), "-1 is below 0"),
        (score().row() | {"prompt_ids": [1, -5]}, "-5 is below 0"),
        (score().row() | {"image_spans": [{"digest": "d", "start": 2, "length": 2}]}, "picture stands behind the end"),
    ],
)
def test_a_judgement_that_no_stage_writes_is_named(tmp_path: Path, row: Mapping[str, Any], message: str) -> None:
    folder = written(tmp_path / "shard", "scores", row)
    with pytest.raises(UserError, match=rf"shard/part-00000\.parquet: .*{message}"):
        read_rows(folder, "scores")


def test_a_scripted_episode_has_no_tokens(tmp_path: Path) -> None:
    """As `rla evaluate` writes them for the frozen probe."""
    row = trajectory(segments=[]).row()
    row["steps"] = [one | {"start": 0, "end": 0} for one in row["steps"]]
    write_shard(tmp_path / "shard", "trajectories", [row], ORIGIN)
    assert len(read_rows(tmp_path / "shard", "trajectories")) == 1


@pytest.mark.parametrize(
    ("kind", "rows", "key"),
    [
        ("trajectories", [episode()] * 3, "trajectory_id a is there 3 times"),
        ("scores", [score().row()] * 2, "trajectory_id a, step 0 is there 2 times"),
    ],
)
@pytest.mark.parametrize("read", [read_rows, lambda *given: list(stream_rows(*given, COLUMNS[:1]))])
def test_a_doubled_key_is_one_line(
    tmp_path: Path, kind: str, rows: list[Mapping[str, Any]], key: str, read: Callable[..., Any]
) -> None:
    """A join on it would have n times n rows."""
    with pytest.raises(UserError, match=f"shard: {key}; rerun the stage"):
        read(written(tmp_path / "shard", kind, *rows), kind)


def test_a_part_whose_key_may_be_null_is_read_with_the_others(tmp_path: Path) -> None:
    """Other programs write every column so that it may be null."""
    writer = ShardWriter(tmp_path / "shard", "trajectories", ORIGIN)
    for group, name in enumerate(("e1", "e2")):
        writer.write(group, [episode(trajectory_id=name)])
    writer.finish()
    folder = tmp_path / "shard"
    part = folder / "part-00000.parquet"
    table = pq.ParquetFile(part).read()
    schema = pa.schema([pa.field(field.name, field.type) for field in table.schema], metadata=table.schema.metadata)
    for name, message in (("e1", None), (None, "trajectories.trajectory_id: null is not allowed")):
        pq.write_table(pa.Table.from_pylist([episode(trajectory_id=name)], schema=schema), part)
        others = read_manifest(folder)["parts"][1:]
        changed(folder, parts=[part_entry(part), *others])
        if message is None:
            assert len(read_rows(folder, "trajectories")) == 2
        else:
            with pytest.raises(UserError, match=message):
                read_rows(folder, "trajectories")


def test_a_key_that_two_parts_have_is_one_line(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path / "shard", "trajectories", ORIGIN)
    for group in range(2):
        writer.write(group, [episode()])
    writer.finish()
    with pytest.raises(UserError, match="trajectory_id a is there 2 times"):
        read_rows(tmp_path / "shard", "trajectories", ["trajectory_id"])


BOMBS = {
    "one text": {"rows": 1, "letters": 30_000_000},
    "a text that repeats": {"rows": 3000, "letters": 10_000},
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=list(BOMBS))
def test_a_pool_of_a_few_kilobytes_that_holds_a_thousand_times_as_much_is_one_line(
    pool: Path, bomb: Mapping[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that repeats lies once in the file's dictionary, so its footer does not tell how much it comes to."""
    monkeypatch.setattr(reading, "LEAST_ROOM", 1 << 20)
    kept = {name: pa.array([value]) for name, value in task("t1").row().items() if name not in ("payload", "task_id")}
    part = pool / "part-00000.parquet"
    schema = arrow_schema("tasks")
    columns: dict[str, Any] = {}
    for field in schema:
        if field.name == "payload":
            text = "a" * bomb["letters"]
            indices = pa.array([0] * bomb["rows"], pa.int32())
            columns[field.name] = pa.DictionaryArray.from_arrays(indices, pa.array([text]))
        elif field.name == "task_id":
            columns[field.name] = pa.array([f"t{number}" for number in range(bomb["rows"])])
        else:
            value = kept[field.name][0].as_py()
            columns[field.name] = pa.array([value] * bomb["rows"], field.type)
    pq.write_table(pa.table(columns), part, compression="zstd", store_schema=False)
    assert part.stat().st_size < 25_000
    changed(pool, rows=bomb["rows"], parts=[part_entry(part)])
    before = pa.total_allocated_bytes()
    with pytest.raises(UserError, match=r"part-00000\.parquet: its rows take more than [0-9]+ MiB of memory"):
        read_tasks(pool)
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_tokens_that_repeat_are_a_bomb_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page holds millions of equal numbers in a few bytes."""
    monkeypatch.setattr(reading, "LEAST_ROOM", 1 << 20)
    count = 2_000_000
    table = pa.table({"trajectory_id": ["a"], "task_id": ["t1"], "step": pa.array([0], pa.int32())})
    values = pa.array(np.full(count, 5, np.int32))
    ids = pa.ListArray.from_arrays([0, count], values, type=arrow_schema("scores").field("prompt_ids").type)
    table = table.append_column("prompt_ids", ids)
    table = table.append_column("mean_score", pa.array([1.0])).append_column(
        "judgements", pa.array([[]], arrow_schema("scores").field("judgements").type)
    )
    spans = arrow_schema("scores").field("image_spans")
    table = table.append_column(spans, pa.nulls(1, spans.type))
    folder = written(tmp_path / "shard", "scores", score().row())
    replaced(folder, table)
    assert (folder / "part-00000.parquet").stat().st_size < 10_000
    with pytest.raises(UserError, match="its rows take more than"):
        read_rows(folder, "scores")


@pytest.mark.parametrize("name", [MANIFEST, "part-00000.parquet"])
def test_a_pipe_in_a_shard_is_one_line_and_is_not_waited_for(pool: Path, name: str) -> None:
    (pool / name).unlink()
    os.mkfifo(pool / name)
    with pytest.raises(UserError, match=f"{name}: a pipe"):
        read_tasks(pool)


def test_a_pipe_as_the_record_of_a_start_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "_started.parquet")
    with pytest.raises(UserError, match="a pipe"):
        ShardWriter(tmp_path, "tasks", ORIGIN)
