"""One update is the same however its examples are laid out: padded, packed, or in several passes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rla.config.sections import ModelConfig
from rla.config.training import SftConfig
from rla.models.checkpoint import open_checkpoint
from rla.models.init import init_model, new_tokenizer
from rla.models.load import load_model
from rla.training.sequences import Example
from rla.training.sft import Collator, arguments, pieces, sft

MODEL = ModelConfig(hidden_size=32, layers=2, heads=2, intermediate_size=32, context=128)
ONE = SftConfig(steps=1, batch_size=6, lr=1e-2, warmup_share=0.0)
LENGTHS = (5, 40, 17, 8, 33, 21)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "m"
    init_model(
        folder,
        tokenizer=new_tokenizer(["you see a mug 1 . take go desk judge: it helps"], context=MODEL.context),
        config=MODEL,
        seed=0,
    )
    return folder


def examples(lengths: Sequence[int] = LENGTHS) -> list[Example]:
    rng = random.Random(3)
    return [
        Example(
            token_ids=[rng.randrange(8, 100) for _ in range(length)],
            weights=[rng.choice((0.0, 0.3, 1.0)) for _ in range(length - 1)] + [1.0],
        )
        for length in lengths
    ]


def trained(
    model: Path, out: Path, config: SftConfig, taught: Sequence[Example] | None = None
) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    """The metrics of every step, and the weights afterwards."""
    steps: list[dict[str, Any]] = []
    sft(model_folder=model, out=out, rounds=[(taught or examples(), config)], seed=0, log=steps.append)
    return steps, dict(load_model(open_checkpoint(out).model, dtype="float32").state_dict())


@pytest.mark.parametrize(
    ("changed", "tokens"),
    [({"packing": True}, sum(LENGTHS)), ({"packing": True, "tokens_per_pass": 50}, sum(LENGTHS))],
    ids=["packed", "in passes"],
)
def test_a_packed_update_is_that_of_padded_rows(
    model: Path, tmp_path: Path, changed: dict[str, Any], tokens: int
) -> None:
    plain, weights = trained(model, tmp_path / "plain", ONE)
    packed, others = trained(model, tmp_path / "packed", replace(ONE, **changed))
    assert plain[0]["tokens"] == len(LENGTHS) * max(LENGTHS)
    assert packed[0]["tokens"] == tokens
    assert packed[0]["loss"] == pytest.approx(plain[0]["loss"], abs=1e-5)
    assert packed[0]["accuracy"] == pytest.approx(plain[0]["accuracy"])
    start = dict(load_model(open_checkpoint(model).model, dtype="float32").state_dict())
    moved = [name for name in weights if not torch.equal(weights[name], start[name])]
    assert moved
    for name in moved:
        torch.testing.assert_close(others[name], weights[name], atol=2e-4, rtol=0)


def test_examples_of_a_row_do_not_see_each_other(model: Path, tmp_path: Path) -> None:
    """The loss of two examples is the mean of what each has alone, by weight: neither helps the other."""
    text = list(range(10, 40))
    taught = [Example(token_ids=text, weights=[1.0] * 30), Example(token_ids=text, weights=[1.0] * 30)]
    packing = replace(ONE, packing=True, batch_size=2)
    both, _ = trained(model, tmp_path / "both", packing, taught)
    alone, _ = trained(model, tmp_path / "alone", replace(packing, batch_size=1), taught[:1])
    assert both[0]["loss"] == pytest.approx(alone[0]["loss"], abs=1e-5)


def test_passes_hold_at_most_so_many_tokens_and_share_one_sum_of_weights() -> None:
    rows = [
        {"input_ids": list(one.token_ids), "loss_weights": list(one.weights), "branches": [], "image_spans": []}
        for one in examples()
    ]
    passes = Collator(packs=True, tokens_per_pass=50)(rows)["passes"]
    assert [one["sizes"] for one in passes] == [[5, 40], [17, 8], [33], [21]]
    total = sum(sum(one.weights[1:]) for one in examples())
    assert [float(one["total"]) for one in passes] == pytest.approx([total] * 4)
    padded = Collator(packs=False, tokens_per_pass=80)(rows)["passes"]
    assert [tuple(one["input_ids"].shape) for one in padded] == [(2, 40), (2, 17), (2, 33)]


def judged() -> list[Example]:
    """Texts of 20 tokens with branches of 6, 9 and 12, of which the last ones count; the first of them leave early."""
    rng = random.Random(4)
    found = []
    for _ in range(2):
        ids = [rng.randrange(8, 100) for _ in range(47)]
        weights = [0.0] * 20 + [0.0] * 3 + [1.0] * 3 + [0.0] * 4 + [1.0] * 5 + [0.0] * 2 + [1.0] * 10
        found.append(Example(token_ids=ids, weights=weights, branches=[(20, 26, 12), (26, 35, 20), (35, 47, 20)]))
    return found


@pytest.mark.parametrize("packing", [True, False])
def test_branches_beyond_a_pass_are_taken_in_several(packing: bool, model: Path, tmp_path: Path) -> None:
    """The update is the same. A branch brings as much of the text as it continues."""
    config = replace(ONE, batch_size=2, packing=packing)
    whole, weights = trained(model, tmp_path / "whole", config, judged())
    parts, others = trained(model, tmp_path / "parts", replace(config, tokens_per_pass=40), judged())
    assert whole[0]["tokens"] == 2 * 47
    assert parts[0]["tokens"] == 2 * (20 + 6 + 9 + 20 + 12)
    assert parts[0]["loss"] == pytest.approx(whole[0]["loss"], abs=1e-5)
    assert parts[0]["accuracy"] == pytest.approx(whole[0]["accuracy"])
    for name, value in weights.items():
        torch.testing.assert_close(others[name], value, atol=2e-4, rtol=0)


def test_pieces_of_an_example_with_pictures() -> None:
    images = [{"digest": name, "start": start, "length": 2} for name, start in (("a", 3), ("b", 12), ("c", 27))]
    row = {
        "input_ids": list(range(35)),
        "loss_weights": [0.0] * 21 + [1.0] * 14,
        "branches": [[20, 26, 10], [26, 35, 20]],
        "image_spans": images,
    }
    assert pieces(row, most=35) == [row]
    first, second = pieces(row, most=34)
    assert first == {
        "input_ids": [*range(10), *range(20, 26)],
        "loss_weights": [0.0] * 11 + [1.0] * 5,
        "branches": [[10, 16, 10]],
        "image_spans": images[:1],
    }
    assert second["branches"] == [[20, 29, 20]] and second["input_ids"] == [*range(20), *range(26, 35)]
    assert [one["start"] for one in second["image_spans"]] == [3, 12, 21]


def test_epochs_count_whole_batches() -> None:
    published = SftConfig(epochs=5, batch_size=32)
    assert published.updates(3000) == 465  # 93 batches of 32, five times; the last 24 examples wait
    assert published.updates(3) == 5
    assert SftConfig(steps=7).updates(3000) == 7


def test_an_epoch_over_fewer_examples_than_a_batch_takes_them_all(model: Path, tmp_path: Path) -> None:
    steps, _ = trained(model, tmp_path / "few", SftConfig(epochs=2, batch_size=32, lr=1e-3), examples((5, 7)))
    assert [one["tokens"] for one in steps] == [14, 14]


def test_the_published_hyperparameters_reach_the_trainer(tmp_path: Path) -> None:
    published = SftConfig(
        lr=1e-5,
        epochs=5,
        batch_size=32,
        warmup_share=0.1,
        weight_decay=0.01,
        beta2=0.95,
        max_length=32768,
        packing=True,
    )
    found = arguments(str(tmp_path), config=published, examples=3000, seed=0)
    assert (found.learning_rate, found.lr_scheduler_type, found.warmup_steps) == (1e-5, "cosine", 46)
    assert (found.weight_decay, found.adam_beta1, found.adam_beta2, found.max_grad_norm) == (0.01, 0.9, 0.95, 1.0)
    assert (found.max_steps, found.per_device_train_batch_size, found.dataloader_drop_last) == (465, 32, True)


def test_it_computes_in_bf16_if_it_is_asked_to_on_a_cpu_too(tmp_path: Path) -> None:
    found = [
        arguments(str(tmp_path), config=SftConfig(steps=1), examples=1, seed=0, half=half) for half in (True, False)
    ]
    assert [one.bf16 for one in found] == [True, False]


def test_the_defaults_are_those_of_before(tmp_path: Path) -> None:
    found = arguments(str(tmp_path), config=SftConfig(steps=200), examples=1000, seed=0)
    assert (found.warmup_steps, found.weight_decay, found.adam_beta1, found.adam_beta2) == (10, 0.0, 0.9, 0.99)
    assert (found.train_sampling_strategy, found.dataloader_drop_last) == ("group_by_length", False)
