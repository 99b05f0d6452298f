"""`rla lineage` over a run whose tasks were changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rla.cli.app import run as call
from rla.store.layout import artifact
from rla.store.reading import read_rows
from rla.store.shards import Origin, write_shard
from tests.unit.adaptation.run_folder import Loop, played_loop

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rla.adaptation.acceptance.CONFIDENCE", 0.5)  # so that eight rollouts accept some
        yield played_loop(tmp_path_factory.mktemp("loop"))


def rows(loop: Loop, kind: str) -> list[dict[str, Any]]:
    return [row for i in range(1, loop.iteration + 1) for row in read_rows(artifact(loop.run, kind, i), kind)]


def lineage(loop: Loop, capsys: Captured, *options: str) -> Any:
    assert call(["lineage", "--run", str(loop.run), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_return_to_the_root_is_shown_with_the_measurements_that_led_to_it(loop: Loop, capsys: Captured) -> None:
    returned = [row for row in rows(loop, "standings") if row["decision"] == "returned"]
    assert returned
    for row in returned:
        entry = lineage(loop, capsys, "--task", row["held_id"])
        assert entry["slot"] == row["slot"]
        assert [(back["iteration"], back["task_id"]) for back in entry["returns"]] == [
            (row["iteration"], row["held_id"])
        ]
        last = [m["accuracy"] for m in entry["measurements"] if m["held_id"] == row["held_id"]][-2:]
        assert len(last) == 2
        assert min(last) >= 0.8 if row["reason"].startswith("mastered") else max(last) <= 0.2


def test_lineage_shows_what_a_model_wrote_without_its_escape_sequences(
    loop: Loop, tmp_path: Path, capsys: Captured
) -> None:
    run = Path(shutil.copytree(loop.run, tmp_path / "run"))
    hostile = "\x1b[2J\x1b]0;owned\x07{}"
    before = read_rows(artifact(run, "candidates", 1), "candidates")
    changed = [row | {"edit": hostile, "reason": hostile, "valid": False} for row in before]
    write_shard(
        artifact(run, "candidates", 1), "candidates", changed, Origin(config="c", inputs={}, seed=0), overwrite=True
    )
    assert call(["lineage", "--run", str(run), "--slot", before[0]["slot"], "--refused"]) == 0
    text = capsys.readouterr().out
    assert "owned" in text and all(line.isprintable() for line in text.split("\n"))


def test_lineage_shows_the_critique_of_a_task_for_which_nothing_was_proposed(
    loop: Loop, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")  # a narrow terminal gets more tables than one
    run = Path(shutil.copytree(loop.run, tmp_path / "run"))
    first = read_rows(artifact(run, "candidates", 1), "candidates")[0]
    first |= {"task_id": "x", "edit": None, "reason": "no edit was found", "valid": False, "critique": "won 0 of 8"}
    made_from = Origin(config="c", inputs={}, seed=0)
    for iteration in range(1, loop.iteration + 1):
        shard = [first] if iteration == 1 else []
        write_shard(artifact(run, "candidates", iteration), "candidates", shard, made_from, overwrite=True)
    assert call(["lineage", "--run", str(run)]) == 0
    [told] = [line for line in capsys.readouterr().out.splitlines() if first["slot"] in line]
    assert told.split()[2] == "0"
    assert call(["lineage", "--run", str(run), "--slot", first["slot"]]) == 0
    assert "won 0 of" not in capsys.readouterr().out
    assert call(["lineage", "--run", str(run), "--slot", first["slot"], "--refused"]) == 0
    [told] = [line for line in capsys.readouterr().out.splitlines() if "won 0 of" in line]
    assert told.split()[1] == "none" and "no edit was found" in told
    assert call(["lineage", "--run", str(run), "--slot", first["slot"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["versions"][0]["edit_kind"] == "none"


def test_lineage_shows_slots_and_one_of_them(loop: Loop, capsys: Captured) -> None:
    assert call(["lineage", "--run", str(loop.run)]) == 0
    assert "slots were asked to change" in capsys.readouterr().out
    accepted = next(row for row in rows(loop, "verdicts") if row["accepted"])
    assert call(["lineage", "--run", str(loop.run), "--slot", accepted["slot"]]) == 0
    text = capsys.readouterr().out
    assert "accepted" in text and "root" in text
    [version] = [v for v in lineage(loop, capsys, "--slot", accepted["slot"])["versions"] if v["verdict"] == accepted]
    assert (version["task_id"], version["created"]) == (accepted["task_id"], accepted["iteration"] - 1)
    assert json.loads(version["edit"]) and version["edit_kind"] != "unreadable"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--slot", "x"], "no such slot"),
        (["--task", "x"], "no such task"),
        (["--slot", "a", "--task", "b"], "give one"),
    ],
)
def test_what_is_not_there_is_refused(loop: Loop, capsys: Captured, options: list[str], said: str) -> None:
    assert call(["lineage", "--run", str(loop.run), *options]) == 2
    assert said in capsys.readouterr().err
