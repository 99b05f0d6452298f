"""Two processes train a vision-language model as one does, also where only one of them has a picture in its pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rla.pictures.vision import png_digest, png_size
from rla.store.shards import Origin, write_shard
from tests.integration.pictures_in_ranks import FILES, run
from tests.integration.test_ranks import ROOT, launched
from tests.seeing import small_model

pytestmark = pytest.mark.usefixtures("forked_python")

SCRIPT = ROOT / "tests/integration/pictures_in_ranks.py"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "trajectories-images"
    names = ("digest", "png", "width", "height")
    rows = [dict(zip(names, (png_digest(png), png, *png_size(png)), strict=True)) for png in FILES]
    write_shard(folder, "images", rows, Origin(config="c", inputs={}, seed=0))
    return folder


@pytest.mark.parametrize(("config", "visions"), [("fsdp2", ("trained", "frozen")), ("ddp", ("trained",))])
def test_weights_are_those_of_one_process(tmp_path: Path, images: Path, config: str, visions: tuple[str, ...]) -> None:
    torch.set_num_threads(1)
    start = small_model("qwen3-vl")
    words = [word for vision in visions for word in (vision, str(tmp_path / vision))]
    launched(config, str(start), str(images), *words, script=SCRIPT)
    before = load_file(start / "model.safetensors")
    for vision in visions:
        run(start, tmp_path / f"{vision}-alone", images, vision=vision)
        alone, ranks = (load_file(tmp_path / name / "model/model.safetensors") for name in (f"{vision}-alone", vision))
        assert alone.keys() == ranks.keys()
        for name, value in alone.items():
            torch.testing.assert_close(ranks[name], value, atol=2e-5, rtol=1e-4)
            if vision == "frozen" and "visual" in name:
                assert torch.equal(value, before[name])
