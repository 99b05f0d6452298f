"""The Arrow schema and the checks come from the JSON Schema; both must refuse the same rows."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

import rla.store.schema
from rla.errors import UserError
from rla.seeds import derive
from rla.store.manifest import Origin
from rla.store.reading import read_rows
from rla.store.records import content_id
from rla.store.schema import GROUP, arrow_schema, load_schema, to_table
from rla.store.shards import ShardWriter
from tests.unit.builders import score, task, trajectory

ROWS: dict[str, dict[str, Any]] = {
    "tasks": task().row(),
    "trajectories": trajectory().row(),
    "scores": score().row(),
}


def plain(row: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(row))
    return data


@pytest.mark.parametrize("kind", sorted(ROWS))
def test_good_rows_pass_both(kind: str) -> None:
    jsonschema.validate(plain(ROWS[kind]), load_schema(kind))
    assert to_table(kind, [ROWS[kind]]).num_rows == 1


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("tasks", {"task_id": ""}),
        ("tasks", {"status": "waiting"}),
        ("tasks", {"depth": -1}),
        ("tasks", {"slot": None}),
        ("trajectories", {"outcome": 0}),
        ("trajectories", {"stop_reason": "bored"}),
        ("trajectories", {"seed": "seven"}),
        ("trajectories", {"steps": [plain(ROWS["trajectories"])["steps"][0] | {"start": -1}]}),
        ("scores", {"mean_score": 1.5}),
        ("scores", {"judgements": [plain(ROWS["scores"])["judgements"][0] | {"score": 0}]}),
        ("scores", {"judgements": [plain(ROWS["scores"])["judgements"][0] | {"logprobs": [0.5]}]}),
    ],
)
def test_bad_rows_fail_both(kind: str, change: dict[str, Any]) -> None:
    row = plain(ROWS[kind]) | change
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(row, load_schema(kind))
    with pytest.raises(UserError, match=kind):
        to_table(kind, [row])


def test_a_missing_column_is_named() -> None:
    row = plain(ROWS["tasks"])
    del row["payload"]
    with pytest.raises(UserError, match="payload"):
        to_table("tasks", [row])


def test_arrow_types_follow_the_formats() -> None:
    schema = arrow_schema("trajectories")
    assert schema.field("outcome").type == pa.int8()
    assert schema.field("seed").type == pa.int64()
    assert not schema.field("task_id").nullable and schema.field("error").nullable
    assert schema.metadata[b"rla_schema_version"] == b"1"


def test_halves_of_surrogate_pairs_in_a_row_are_replaced() -> None:
    row = trajectory(final_observation="You \ud83d won.", instruction="\ud83d\ude00").row()
    row["steps"] = [one | {"reply": "\udc00", "commands": ("go \ud800",)} for one in row["steps"]]
    (written,) = to_table("trajectories", [trajectory("b").row(), row]).slice(1).to_pylist()
    assert (written["final_observation"], written["instruction"]) == ("You \ufffd won.", "\U0001f600")
    assert (written["steps"][0]["reply"], written["steps"][0]["commands"]) == ("\ufffd", ["go \ufffd"])


def test_a_task_with_half_a_surrogate_pair_has_an_id_and_a_seed() -> None:
    assert content_id("put \ud83d in desk") != content_id("put  in desk")
    assert derive("put \ud83d in desk") == derive("put \ud83d in desk")


def test_a_package_brings_a_kind_of_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"note_id": {"type": "string", "minLength": 1}, "stars": {"type": "integer"}}
    schema = {"version": 1, "key": ["note_id"], "type": "object", "properties": columns}
    (tmp_path / "notes.schema.json").write_text(json.dumps(schema))
    (tmp_path / "notes_of_a_test.py").write_text(
        "from pathlib import Path\n\nSCHEMA = Path(__file__).with_name('notes.schema.json')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = EntryPoint(name="notes", value="notes_of_a_test:SCHEMA", group=GROUP)
    monkeypatch.setattr(rla.store.schema, "registered", lambda group: {"notes": entry} if group == GROUP else {})
    writer = ShardWriter(tmp_path / "shard", "notes", Origin(config="c", inputs={}, seed=0))
    writer.write(0, [{"note_id": "a", "stars": 3}])
    writer.finish({})
    assert list(read_rows(tmp_path / "shard", "notes")) == [{"note_id": "a", "stars": 3}]
    with pytest.raises(UserError, match=r"notes.note_id: text shorter than 1"):
        to_table("notes", [{"note_id": "", "stars": 3}])


def test_a_schema_that_is_no_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint(name="numbers", value="math:pi", group=GROUP)
    monkeypatch.setattr(rla.store.schema, "registered", lambda group: {"numbers": entry})
    with pytest.raises(UserError, match=r"rla.schemas: numbers is math:pi, which is not the Path of a file; mend the"):
        load_schema("numbers")


def test_a_kind_of_shard_that_nothing_installed_has_is_refused() -> None:
    with pytest.raises(UserError, match=r"recipes: no installed package has shards of this kind; install the one"):
        load_schema("recipes")
