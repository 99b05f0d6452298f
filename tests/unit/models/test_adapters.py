"""What a checkpoint of LoRA training is made of, and that an engine is given the base that was trained on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from rla.errors import UserError  # noqa: E402
from rla.models.checkpoint import parts_of  # noqa: E402
from rla.models.load import load_model, load_tokenizer, load_weights, merged_folder  # noqa: E402
from tests.unit.training.builders import adapter_run  # noqa: E402


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`start`, a plain model, and the checkpoints `1`, `2`, and `3`, which is 2 carried over."""
    return adapter_run(tmp_path_factory.mktemp("run"), 4, 4, 0)


def test_all_iterations_have_one_base_and_adapters_of_their_own(run: Path) -> None:
    start, *trained = (parts_of(run / name) for name in ("start", "1/model", "2/model", "3/model"))
    assert start.adapter is None
    one, two, again = (parts.adapter for parts in trained)
    assert one and two and again
    assert one.rank == 2 and one.digest != two.digest == again.digest
    assert {parts.base for parts in trained} == {run / "start"}
    assert {parts.weights for parts in trained} == {start.weights}


def test_base_and_adapter_are_one_model_to_whoever_loads_them(run: Path) -> None:
    """As `peft` adds them up. An engine that is kept takes the weights of another iteration in place."""
    ids = torch.arange(20)[None]
    whole = peft.PeftModel.from_pretrained(load_model(run / "start"), run / "2/adapter").eval()
    kept = load_model(run / "1/model")
    with torch.no_grad():
        assert (kept(ids).logits - whole(ids).logits).abs().max() > 1e-3
        load_weights(kept, run / "2/model")
        assert torch.equal(kept(ids).logits, load_model(run / "2/model")(ids).logits)
        torch.testing.assert_close(kept(ids).logits, whole(ids).logits, atol=1e-5, rtol=1e-5)


def test_readers_of_files_get_a_folder_for_as_long_as_they_read(run: Path) -> None:
    with merged_folder(run / "start", dtype="bfloat16") as folder:
        assert folder == run / "start"
    with merged_folder(run / "2/model", dtype="bfloat16") as folder:
        assert load_tokenizer(folder).chat_template == load_tokenizer(run / "2/model").chat_template
        found, expected = (load_model(one, dtype="bfloat16").state_dict() for one in (folder, run / "2/model"))
    assert not Path(folder).exists()
    assert all(torch.equal(value, expected[name]) for name, value in found.items())


def test_what_cannot_be_put_together_is_refused(run: Path, tmp_path: Path) -> None:
    elsewhere = Path(shutil.copytree(run / "1", tmp_path / "alone"))
    with pytest.raises(UserError, match=r"start/model\.safetensors: missing; .*alone holds an adapter over it"):
        parts_of(elsewhere / "model")
    both = tmp_path / "both"
    shutil.copytree(run / "start", both / "start")
    there = Path(shutil.copytree(run / "1", both / "1"))
    (there / "adapter/adapter_model.safetensors").unlink()
    with pytest.raises(UserError, match="adapter: not a readable adapter"):
        parts_of(there / "model")
    (there / "model/base.json").write_text("{}")
    with pytest.raises(UserError, match=r"base\.json: does not say which base the adapter lies over"):
        parts_of(there / "model")
