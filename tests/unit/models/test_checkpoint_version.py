"""A checkpoint of another version is refused, whatever of it is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rla.errors import UserError
from rla.models.checkpoint import model_folder, open_checkpoint
from rla.training.checkpoints import open_to_train


@pytest.mark.parametrize("read", [open_checkpoint, open_to_train, model_folder])
def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path, read) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "model").mkdir()
    (tmp_path / "checkpoint.json").write_text(json.dumps({"rla": "0.0.9", "updates": 1, "digest": "d"}))
    with pytest.raises(UserError, match=r'checkpoint\.json: written by version "0\.0\.9" of rla, and this is .*train'):
        read(tmp_path)
