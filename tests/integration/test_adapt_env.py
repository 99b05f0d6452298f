"""`rla adapt-env` as a command: by rules and by a language model that has learnt nothing, interrupted and killed."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from rla.adaptation import drafting
from rla.adaptation.candidates import NOT_TRIED
from rla.adaptation.drafting import NOTHING, Proposal
from rla.envs.alfworld.environment import Alfworld
from rla.store.manifest import MANIFEST
from rla.store.reading import read_manifest, read_rows
from rla.store.shards import ShardWriter
from tests.integration.conftest import Rla, rla_in, stages
from tests.integration.pipelines import PARAMS, contents, forked, forked_until

# Twelve tasks that scripted replies hardly ever win; a context that holds the proposer's prompt.
LARGER = (
    PARAMS.replace("train_scenes: 3", "train_scenes: 8")
    .replace("tasks_per_iteration: 4, rollouts_per_task: 4", "tasks_per_iteration: 16, rollouts_per_task: 2")
    .replace("context: 512", "context: 3072")
    .replace("{max_tasks: 2}", "{max_tasks: 12, proposals_per_task: 3}")
    .replace("{name: alfworld,", "{name: alfworld,")
)
MODEL = ("--set", "adaptation.proposer=llm", "--set", "generator.backend=transformers")
SHORT = ("--set", "adaptation.llm.max_tokens=24")
BEFORE = ("rollout", "score-steps", "validate-tasks")
KILLS = 8


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose first iteration was played, judged and decided."""
    folder = tmp_path_factory.mktemp("run")
    with rla_in(folder, LARGER) as rla:
        stages(rla, *BEFORE)
    return folder


@pytest.fixture
def played(rla: Rla, run: Path, tmp_path: Path) -> Path:
    """The working folder, with a copy of it, the run `r`."""
    return shutil.copytree(run, tmp_path, symlinks=True, dirs_exist_ok=True)


def candidates(folder: Path) -> list[dict[str, Any]]:
    return read_rows(folder, "candidates")


def test_rules_make_one_valid_task_a_slot_and_say_why(rla: Rla, played: Path) -> None:
    assert rla("adapt-env", "--run", "r", "--out", "c")[0] == 0
    valid = [row for row in candidates(played / "c") if row["valid"]]
    assert len(valid) >= 8 and len({row["slot"] for row in valid}) == len(valid)
    assert all("won" in row["critique"] and "steps by phase" in row["critique"] for row in valid)


def test_a_model_that_has_learnt_nothing_goes_through_to_the_end(rla: Rla, played: Path) -> None:
    """Everything that it says is kept, with the reason why it is no edit."""
    call = ("adapt-env", "--run", "r", *MODEL, *SHORT)
    code, _, err = rla(*call, "--out", "c")
    assert code == 0, err
    rows = candidates(played / "c")
    assert len(rows) >= 12 and not any(row["valid"] for row in rows)
    assert {row["reason"] for row in rows} <= {
        "the reply was cut at adaptation.llm.max_tokens",
        "the edit is not a JSON object",
    }
    assert all(row["critique"].startswith("won ") for row in rows)
    assert rla(*call, "--out", "again")[0] == 0
    assert contents(played / "again") == contents(played / "c")


def test_where_rules_find_nothing_the_critique_is_kept_and_nothing_counts(
    rla: Rla, played: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Alfworld, "propose", lambda *_, **__: [])
    assert rla("adapt-env", "--run", "r", "--out", "c")[0] == 0
    rows, counts = candidates(played / "c"), read_manifest(played / "c", "candidates")["counts"]
    assert len(rows) == counts["chosen"] >= 8
    assert {(row["edit"], row["valid"], row["reason"]) for row in rows} == {(None, False, NOTHING.refused)}
    assert all(row["critique"].startswith("won ") and row["parent_id"] for row in rows)
    assert (counts["proposed"], counts["tried"], counts["valid"], counts["by_edit"]) == (0, 0, 0, {})


def test_an_edit_that_a_model_names_is_proven_and_becomes_pending(
    rla: Rla, played: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same model, whose replies are read as others: one that fits every scene, and one that fits none."""
    replies = itertools.cycle([Proposal('{"remove": [{"object": "mug 99"}]}'), Proposal('{"hint": "where"}')])
    monkeypatch.setattr(drafting, "read_proposal", lambda *arguments: next(replies))
    code, _, err = rla("adapt-env", "--run", "r", *MODEL, *SHORT, "--out", "c")
    assert code == 0, err
    rows = candidates(played / "c")
    valid = [row for row in rows if row["valid"]]
    assert len(valid) >= 8 and {json.loads(row["edit"])["hint"] for row in valid} == {"where"}
    assert all(row["status"] == "pending" and row["parent_id"] != row["task_id"] for row in valid)
    refused = [row["reason"] for row in rows if "remove" in row["edit"] and not row["reason"].startswith(NOT_TRIED)]
    assert refused and all(reason.startswith("remove.0.object breaks the rule") for reason in refused)


def test_an_interrupted_call_keeps_what_was_proven_and_ends_equal(
    rla: Rla, played: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rla("adapt-env", "--run", "r", "--out", "calm")[0] == 0
    write, written = ShardWriter.write, []

    def twice(self: ShardWriter, index: int, rows: Any) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(index)
        write(self, index, rows)

    with monkeypatch.context() as patch:
        patch.setattr(ShardWriter, "write", twice)
        assert rla("adapt-env", "--run", "r", "--out", "stormy")[0] == 130
    assert written == [0, 1] and not (played / "stormy" / MANIFEST).exists()
    assert rla("adapt-env", "--run", "r", "--out", "stormy")[0] == 0
    assert contents(played / "stormy") == contents(played / "calm")


@pytest.mark.slow
def test_a_call_that_is_killed_at_random_moments_equals_an_undisturbed_one(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(LARGER)
    for stage in BEFORE:
        forked(["rla", stage, "--run", "r"], tmp_path)
    started = time.monotonic()
    forked(["rla", "adapt-env", "--run", "r", "--out", "calm"], tmp_path)
    whole = time.monotonic() - started
    calm, moments = contents(tmp_path / "calm"), random.Random(7)
    folders = [tmp_path / "stormy-0"]
    for _ in range(KILLS):
        call = ["rla", "adapt-env", "--run", "r", "--out", str(folders[-1])]
        while not forked_until(moments.uniform(0.3, 0.95) * whole, call, tmp_path):
            folders.append(tmp_path / f"stormy-{len(folders)}")
            call[-1] = str(folders[-1])
    forked(call, tmp_path)
    halved = tmp_path / "halved"
    call[-1] = str(halved)
    assert forked(call, tmp_path, moment=lambda: any(halved.glob("part-*.parquet")))
    assert not (halved / MANIFEST).exists()
    forked(call, tmp_path)
    assert all(contents(folder) == calm for folder in [*folders, halved])
