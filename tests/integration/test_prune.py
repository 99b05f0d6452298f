"""Pruning under DVC itself: a pruned run is up to date, goes on, reports whole, and what changes still reruns."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rla.models.checkpoint import pruned_parts
from tests.integration.pipelines import PARAMS, contents, make_pipeline, run

REPRO = ["dvc", "repro"]
RUN = ["sh", "-c", 'rla run --verbose --run runs/t "$@" 2>&1', "sh", "--iterations"]
pytestmark = pytest.mark.slow


def stages(output: str) -> list[str]:
    """The stages that were called."""
    return re.findall(r"Running stage '(.+?)'", output)


def whole(folder: Path, model: str) -> list[int]:
    return sorted(
        int(found.parent.name) for found in (folder / "runs/t").glob(f"[0-9]*/{model}") if not pruned_parts(found)
    )


def history(folder: Path) -> list[dict[str, object]]:
    """The rows of the report, without what follows the clock."""
    rows = json.loads((folder / "runs/t/report/report.json").read_text())["iterations"]
    return [{key: value for key, value in row.items() if "second" not in key} for row in rows]


def test_a_pruned_run_is_up_to_date_goes_on_and_reruns_what_changed(tmp_path: Path) -> None:
    folder = make_pipeline(tmp_path / "pruned", iterations=2, params=PARAMS + "checkpoints: {keep: 0}\n")
    run([*RUN, "2"], folder)
    before, rows = contents(folder / "runs/t"), history(folder)
    run(["rla", "prune", "--run", "runs/t", "--set", "checkpoints.keep=1"], folder)
    after = contents(folder / "runs/t")
    gone = before.keys() - after.keys()
    # No task of iteration 1 is won by some and lost by others: its policy is the start's, which has no train state.
    assert {tuple(path.split("/")[:3]) for path in gone} == {
        *(("1", "policy", "model"), ("1", "rm", "model"), ("1", "rm", "state"))
    }
    assert after.keys() - before.keys() == {"1/policy/pruned.json", "1/rm/pruned.json"}
    assert all(after[path] == before[path] for path in before.keys() - gone)
    assert "up to date" in run(REPRO, folder)

    (folder / "params.yaml").write_text(PARAMS + "checkpoints: {keep: 1}\n")
    called = stages(run([*RUN, "3"], folder))
    assert {name for name in called if not name.endswith("@3")} == {"report"}
    assert whole(folder, "policy") == whole(folder, "rm") == [0, 3]
    assert history(folder)[:2] == rows and len(rows) == 2
    assert history(folder)[2]["rm_entropy"] is not None

    # Another policy: iteration 2 is played anew and judged by the reward model of 1, which was pruned and is the same.
    text = (folder / "params.yaml").read_text()
    (folder / "params.yaml").write_text(text.replace("train_policy: {lr: 1.0e-3", "train_policy: {lr: 2.0e-3"))
    record = (folder / "runs/t/1/rm/checkpoint.json").read_bytes()
    again = [*RUN, "3", "--overwrite"]
    stopped = run(["sh", "-c", '"$@" || true', "sh", *again], folder)
    command = re.search(r"runs/t/1/rm: its model/ was pruned to save space; .* make it again with `(.+?)`", stopped)
    assert command is not None, stopped
    run(["sh", "-c", command[1]], folder)
    called = stages(stopped) + stages(run(again, folder))
    assert {"train-policy@1", "rollout@2", "score-steps@3", "train-rm@3", "evaluate@3", "report"} <= set(called)
    assert not {"rollout@1", "score-steps@1", "train-rm@1", "evaluate@0"} & set(called)
    assert (folder / "runs/t/1/rm/checkpoint.json").read_bytes() == record
    assert whole(folder, "policy") == whole(folder, "rm") == [0, 3]
    assert "up to date" in run(REPRO, folder)
