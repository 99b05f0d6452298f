"""A new model is an ordinary Hugging Face folder; what is missing from a folder is said in one line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rla.config.sections import ModelConfig
from rla.errors import UserError
from rla.models.checkpoint import model_folder
from rla.models.init import init_model, new_tokenizer
from rla.models.load import load_model, load_tokenizer, tokenizer_fingerprint

SMALL = ModelConfig(hidden_size=16, layers=1, heads=2, intermediate_size=32, context=64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("models") / "new"
    init_model(target, tokenizer=new_tokenizer(["go to desk"], context=SMALL.context), config=SMALL, seed=3)
    return target


def test_the_folder_loads_with_the_asked_sizes(folder: Path) -> None:
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    assert model.config.vocab_size == len(tokenizer) == 7 + 100 + 3
    # embeddings, then q + k + v + o, gate + up + down, two q/k norms of width 8, three norms of width 16
    layer = 16 * 16 + 2 * 16 * 8 + 16 * 16 + 3 * 16 * 32 + 2 * 8 + 2 * 16
    assert model.num_parameters() == 110 * 16 + layer + 16
    assert model.dtype == torch.float32
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight


def test_weights_depend_on_the_seed_alone(folder: Path, tmp_path: Path) -> None:
    for name, seed in (("same", 3), ("other", 4)):
        init_model(
            tmp_path / name, tokenizer=new_tokenizer(["go to desk"], context=SMALL.context), config=SMALL, seed=seed
        )
    weights = (folder / "model.safetensors").read_bytes()
    assert (tmp_path / "same" / "model.safetensors").read_bytes() == weights
    assert (tmp_path / "other" / "model.safetensors").read_bytes() != weights
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "same"]


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (ModelConfig(hidden_size=90), "model.hidden_size"),
        (ModelConfig(hidden_size=96, heads=3), "model.heads must be even"),
    ],
)
def test_sizes_that_do_not_fit_name_the_key(config: ModelConfig, key: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=key):
        init_model(tmp_path / "new", tokenizer=new_tokenizer(["go"], context=config.context), config=config, seed=0)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "no config.json"),
        ("model.safetensors", "no weights"),
        ("tokenizer.json", "no tokenizer"),
    ],
)
def test_a_missing_file_is_named(folder: Path, tmp_path: Path, missing: str, message: str) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / missing).unlink()
    with pytest.raises(UserError, match=message) as caught:
        (load_tokenizer if missing == "tokenizer.json" else load_model)(broken)
    assert str(broken) in str(caught.value)


@pytest.mark.parametrize("load", [load_model, load_tokenizer])
def test_code_that_a_model_brings_is_refused_without_a_question(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[[Path], object]
) -> None:
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    brought = {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M", "AutoTokenizer": [None, "own.T"]}
    for file, name in (("config.json", "model_type"), ("tokenizer_config.json", "tokenizer_class")):
        told = json.loads((own / file).read_text()) | {name: "own", "auto_map": brought}
        (own / file).write_text(json.dumps(told))
    (own / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nC = M = T = None\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(UserError, match=r"own: its auto_map names Python code of its own, which rla never runs"):
        load(own)
    assert not (tmp_path / "ran").exists()


def test_a_model_that_transformers_knows_loads_by_its_own_code_alone(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    settings = json.loads((own / "config.json").read_text())
    settings["auto_map"] = {"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}
    (own / "config.json").write_text(json.dumps(settings))
    assert type(load_model(own)).__module__.startswith("transformers.models.")


def test_a_missing_chat_template_is_named(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="no chat template"):
        load_tokenizer(broken)


def test_a_missing_folder_is_not_taken_for_a_hub_id(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such model folder"):
        load_model(tmp_path / "absent")


def test_an_unknown_dtype_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="float33"):
        load_model(folder, dtype="float33")


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "own"))


LOADERS: list[Callable[[Path], object]] = [load_tokenizer, tokenizer_fingerprint, load_model]


def outcomes(model: Path) -> list[str]:
    """What each loader says of a folder: one line, or nothing where it does not read the file."""
    found = []
    for load in LOADERS:
        try:
            load(model_folder(model))
        except UserError as error:
            found.append(str(error))
    assert all("\n" not in one for one in found)
    return found


@pytest.mark.parametrize(
    "content", ["{", "[]", "[" * 100_000, '{"model": []}', '{"model_type": "unheard of"}', "\ud800"]
)
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json"])
def test_a_file_that_is_not_what_its_name_says_is_one_line(own: Path, name: str, content: str) -> None:
    (own / name).write_bytes(content.encode("utf-8", "surrogatepass"))
    assert all(str(own) in one for one in outcomes(own))


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_weights_that_cannot_be_read_are_one_line(own: Path, name: str) -> None:
    (own / "model.safetensors").unlink()
    (own / name).write_bytes(b"x" * 100)
    with pytest.raises(UserError, match="own: cannot be loaded"):
        load_model(own)


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "config.json", "chat_template.jinja", "model.safetensors.index.json"]
)
def test_a_file_of_a_model_that_is_far_too_large_is_one_line(own: Path, name: str) -> None:
    with (own / name).open("wb") as file:
        file.truncate(189 << 20)
    assert outcomes(own) == [f"{own / name}: 189 MiB, and at most 64 MiB are read of such a file; replace it"] * 3


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "added_tokens.json", "model-00002.safetensors"])
def test_a_pipe_in_a_model_folder_is_one_line_and_is_not_waited_for(own: Path, name: str) -> None:
    (own / name).unlink(missing_ok=True)
    os.mkfifo(own / name)
    assert outcomes(own) == [f"{own / name}: a pipe, a socket or a device, not a file; move it away"] * 3
