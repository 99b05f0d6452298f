"""Pruning under DVC itself: a pruned run is up to date, goes on, reports whole, and what changes still reruns."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rla.store.pruned import pruned_parts
from tests.integration.pipelines import PARAMS, contents, make_pipeline, plan, run

KEPT = PARAMS + "checkpoints: {keep: 1}\n"
REPRO = ["dvc", "repro"]
pytestmark = pytest.mark.slow


def stages(output: str) -> list[str]:
    """The stages that `dvc repro` called."""
    return re.findall(r"Running stage '(.+?)'", output)


def whole(folder: Path, model: str) -> list[int]:
    return sorted(
        int(found.parent.name) for found in (folder / "runs/t").glob(f"[0-9]*/{model}") if not pruned_parts(found)
    )


def history(folder: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads((folder / "runs/t/report/history.json").read_text())
    return rows


def test_a_pruned_run_is_up_to_date_goes_on_and_reruns_what_changed(tmp_path: Path, socket: Path) -> None:
    folder = make_pipeline(tmp_path / "pruned", iterations=3, params=KEPT)
    run(REPRO, folder, socket)
    assert whole(folder, "policy") == whole(folder, "rm") == [0, 3]
    assert "up to date" in run(REPRO, folder, socket)

    plan(folder, iterations=4)
    called = stages(run(REPRO, folder, socket))
    assert {name for name in called if not name.endswith("@4")} == {"report"}
    assert whole(folder, "policy") == whole(folder, "rm") == [0, 4]

    reference = make_pipeline(tmp_path / "whole", iterations=4, params=KEPT.replace("keep: 1", "keep: 0"))
    run(["sh", "-c", "dvc repro && dvc repro"], reference, socket)
    kept, all_kept = contents(folder / "runs/t"), contents(reference / "runs/t")
    gone = all_kept.keys() - kept.keys()
    assert {(path.split("/")[0], path.split("/")[2]) for path in gone if path[0] in "123"} == {
        *((str(i), part) for i in (1, 2, 3) for part in ("model", "state"))
    }
    assert {path: kept[path] for path in kept if not path.endswith("pruned.json")} == {
        path: all_kept[path] for path in kept if path in all_kept
    }
    shown = [{key: row[key] for key in row if "seconds" not in key and "per_s" not in key} for row in history(folder)]
    assert [row["iteration"] for row in shown] == [1, 2, 3, 4] and all(row["policy_entropy"] for row in shown)

    # Another policy: iteration 2 is played anew and judged by the reward model of 1, which was pruned and is the same.
    text = (folder / "params.yaml").read_text()
    (folder / "params.yaml").write_text(text.replace("train_policy: {lr: 1.0e-3", "train_policy: {lr: 2.0e-3"))
    record = (folder / "runs/t/1/rm/checkpoint.json").read_bytes()
    output = run(REPRO, folder, socket)
    assert "runs/t/1/rm: pruned; train-rm of iteration 1 makes it again" in output
    called = stages(output)
    assert {"train-policy@1", "rollout@2", "score-steps@4", "train-rm@4", "evaluate@4", "report"} <= set(called)
    assert not {"rollout@1", "score-steps@1", "train-rm@1", "evaluate@0"} & set(called)
    assert (folder / "runs/t/1/rm/checkpoint.json").read_bytes() == record
    assert whole(folder, "policy") == whole(folder, "rm") == [0, 4]
    assert "up to date" in run(REPRO, folder, socket)
