"""Bases that adapters lie over: one for all iterations of a run, and for weights that an engine cannot tell apart."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from rla_ray.engines.bases import base_digest  # noqa: E402

from rla.errors import UserError  # noqa: E402
from rla.models.checkpoint import parts_of  # noqa: E402
from rla.models.load import load_model  # noqa: E402
from tests.unit.training.builders import adapter_run  # noqa: E402


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`start`, a plain model, and the checkpoints `1` and `2`, each trained from the one before."""
    return adapter_run(tmp_path_factory.mktemp("run"), 4, 4)


def test_all_iterations_have_one_base(run: Path) -> None:
    parts = [parts_of(run / name) for name in ("start", "1/model", "2/model")]
    assert len({base_digest(one, dtype="float32") for one in parts}) == 1


def test_bases_that_differ_only_beyond_the_engines_precision_are_one(run: Path, tmp_path: Path) -> None:
    load_model(run / "start", dtype="bfloat16").save_pretrained(tmp_path)
    start, rounded = parts_of(run / "start"), parts_of(tmp_path)
    assert base_digest(start, dtype="bfloat16") == base_digest(rounded, dtype="bfloat16")
    assert base_digest(start, dtype="float32") != base_digest(rounded, dtype="float32")


def test_a_base_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"short")
    with pytest.raises(UserError, match=r"model\.safetensors: cannot be read"):
        base_digest(parts_of(tmp_path), dtype="float32")
