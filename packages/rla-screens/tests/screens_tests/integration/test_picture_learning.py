"""A small new vision-language model learns from demonstrations what a text model cannot know: it really looks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rla.cli.app import run
from tests import squares
from tests.seeing import png_of

PARAMS = squares.PARAMS.replace("train_scenes: 6, test_scenes: 3", "train_scenes: 16, test_scenes: 10").replace(
    "architecture: seeing",
    "architecture: vision, own: {hidden_size: 16, layers: 2, heads: 2, patch_size: 4, most_tokens: 64}",
)
SETTINGS = (
    "warm_start.policy={examples: 120, steps: 200, batch_size: 16, lr: 3.0e-3}",
    "warm_start.reward={examples: 4, steps: 1, batch_size: 4}",
    "evaluation.rollouts_per_task=4",
)


def grey(*_: Any, **__: Any) -> bytes:
    return png_of((90, 90, 90), width=24, height=16)


def call(*arguments: str) -> None:
    flags = [part for one in SETTINGS for part in ("--set", one)]
    assert run([*arguments, "--run", "r", *flags]) == 0, arguments


def success(metrics: str) -> float:
    return float(json.loads(Path(metrics).read_text())["success"])


def test_the_policy_wins_by_what_it_sees_and_not_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three colours in a row are guessed once in 27 episodes."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(PARAMS)
    with squares.squares_installed():
        for stage in ("make-tasks", "init-model", "warm-start", "evaluate"):
            call(stage)
        monkeypatch.setattr(squares, "png_of", grey)
        call("evaluate", "--out", "blank", "--metrics", "blank.json")
    assert success("r/eval/0/metrics.json") > 0.9
    assert success("blank.json") < 0.2
