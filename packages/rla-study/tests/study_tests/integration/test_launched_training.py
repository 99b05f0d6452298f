"""Trackers of a training on several processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from study_tests.tracking.test_trackers import curves
from tests.integration.test_launch import Call, call, judged, made

__all__ = ["call", "judged", "made"]
pytestmark = pytest.mark.usefixtures("forked_python")


def test_the_first_of_two_launched_processes_logs_every_update_once(judged: Path, call: Call) -> None:
    call("train-policy", "--set", "launch.training=two.yaml")
    lines = (judged / "runs/t/1/policy/metrics.jsonl").read_text().splitlines()
    updates = [(one["update"], pytest.approx(one["loss"], rel=1e-6)) for one in map(json.loads, lines)]
    assert updates and curves(judged / "runs/t")["train-policy/loss"] == updates
    assert len(list((judged / "runs/t/tensorboard/train-policy").iterdir())) == 1
