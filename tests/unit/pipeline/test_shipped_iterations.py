"""The repository's own `iterations.yaml` is that of `make run`."""

from __future__ import annotations

from pathlib import Path

import yaml

TOP = Path(__file__).resolve().parents[3]


def test_the_shipped_plan_is_the_small_run() -> None:
    plan = yaml.safe_load((TOP / "iterations.yaml").read_text())
    assert (plan["run"], plan["params"]) == ("runs/alfworld-tiny", "params.yaml")
    assert (plan["last"], plan["evaluations"]) == (12, [0, 12])
