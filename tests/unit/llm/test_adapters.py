"""What a checkpoint of LoRA training is made of, and that an engine is given the base that was trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from rla.config.training import LoraConfig, TrainConfig  # noqa: E402
from rla.errors import UserError  # noqa: E402
from rla.llm.adapters import base_folder, parts_of  # noqa: E402
from rla.models.load import load_model, load_tokenizer  # noqa: E402
from rla.training.loop import train  # noqa: E402
from tests.unit.training.builders import random_sequences, tiny_model  # noqa: E402

LORA = TrainConfig(lr=1e-2, updates=1, kl_coef=0.0, lora=LoraConfig(rank=2, alpha=4.0))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`start`, a plain model, and the checkpoints `1`, `2`, and `3`, which is 2 carried over."""
    folder = tmp_path_factory.mktemp("run")
    tiny_model(folder / "start")
    for before, after, count in (("start", "1", 4), ("1", "2", 4), ("2", "3", 0)):
        sequences = random_sequences(count)
        train(
            model_folder=folder / before, out=folder / after, sequences=sequences, config=LORA, temperature=1.0, seed=0
        )
    return folder


def test_all_iterations_have_one_base_and_adapters_of_their_own(run: Path) -> None:
    start, *trained = (parts_of(run / name) for name in ("start", "1/model", "2/model", "3/model"))
    assert start.adapter is None
    one, two, again = (parts.adapter for parts in trained)
    assert one and two and again
    assert one.rank == 2 and one.digest != two.digest == again.digest


def test_the_base_is_the_model_that_training_froze(run: Path) -> None:
    """`peft` has noted the folder that the stage had read, which is merged already: adding to it would count twice."""
    parts = parts_of(run / "2/model")
    assert parts.adapter is not None
    with base_folder(parts) as folder:
        base = load_model(folder)
        assert load_tokenizer(folder).chat_template == load_tokenizer(run / "2/model").chat_template
    assert not Path(folder).exists()
    ids = torch.arange(20)[None]
    whole = peft.PeftModel.from_pretrained(base, parts.adapter.folder).eval()
    with torch.no_grad():
        torch.testing.assert_close(whole(ids).logits, load_model(run / "2/model")(ids).logits, atol=1e-5, rtol=1e-5)
        twice = peft.PeftModel.from_pretrained(load_model(run / "1/model"), parts.adapter.folder).eval()
        assert (twice(ids).logits - whole(ids).logits).abs().max() > 1e-3


def test_what_cannot_be_taken_apart_is_refused(run: Path, tmp_path: Path) -> None:
    for part in ("model", "adapter", "state"):
        (tmp_path / part).mkdir()
    (tmp_path / "checkpoint.json").write_text((run / "1/checkpoint.json").read_text())
    with pytest.raises(UserError, match=r"state/reference\.safetensors\); bring them, or set generator\.lora: merged"):
        parts_of(tmp_path / "model")
    (tmp_path / "state/reference.safetensors").write_bytes(b"short")
    with pytest.raises(UserError, match="adapter: not a readable adapter"):
        parts_of(tmp_path / "model")
