"""`rla merge` writes a checkpoint as one model folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.cli.app import run as rla
from rla.config.sections import ModelConfig
from rla.models.init import init_model, new_tokenizer
from rla.models.load import load_model


def test_a_model_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ModelConfig(hidden_size=16, layers=1, heads=2, intermediate_size=32, context=64)
    init_model(
        tmp_path / "model", tokenizer=new_tokenizer(["go to desk 1"], context=sizes.context), config=sizes, seed=0
    )
    words = ["merge", str(tmp_path / "model"), str(tmp_path / "whole")]
    assert rla(words) == 0
    assert load_model(tmp_path / "whole").config.hidden_size == 16
    assert rla(words) == 2
    assert "whole exists already" in capsys.readouterr().err
